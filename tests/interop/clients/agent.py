"""The Python end of the line protocol between the driver and one SDK client.

The driver writes one JSON command a line on standard input and reads one JSON answer a line from standard
output. A client program brings `connect(stack, endpoint)`, which enters an SDK connection on the exit stack and
returns an object with `server()`, `list_tools()` and `call(tool, arguments, meta)`. Nothing is judged here: what
the SDK returned, or the words with which it gave up, goes back to the driver as it is.
"""

import contextlib
import json
import sys

import anyio


async def serve(connect):
    """Answer the driver's commands until it closes standard input."""
    async with anyio.create_task_group() as connections:
        connection = None
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            command = json.loads(line)
            match command["op"]:
                case "open":
                    connection = Connection()
                    connections.start_soon(connection.live, connect, command["endpoint"])
                    answer = await connection.answer()
                case "close":
                    answer = await connection.close()
                case _:
                    answer = await connection.ask(command)
            print(json.dumps(answer), flush=True)
        connections.cancel_scope.cancel()


class Connection:
    """An SDK connection in a task of its own.

    When a connection breaks, the Python SDKs cancel the task that holds it and raise only where their contexts are
    left. So the task's end is what answers a command that was under way.
    """

    def __init__(self):
        self.command_in, self.commands = anyio.create_memory_object_stream(1)
        self.answer_in, self.answers = anyio.create_memory_object_stream(1)
        self.ending = {"ok": None}

    async def live(self, connect, endpoint):
        try:
            async with contextlib.AsyncExitStack() as stack:
                peer = await connect(stack, endpoint)
                await self.answer_in.send({"ok": peer.server()})
                async for command in self.commands:
                    await self.answer_in.send(await obey(peer, command))
        except Exception as error:  # whatever an SDK raises is an answer
            self.ending = {"error": told(error)}
        finally:
            self.answer_in.close()

    async def ask(self, command):
        self.command_in.send_nowait(command)
        return await self.answer()

    async def answer(self):
        try:
            return await self.answers.receive()
        except anyio.EndOfStream:
            return self.ending

    async def close(self):
        """Leave the SDK's contexts; how a broken connection complains on its way out is the answer."""
        self.command_in.close()
        return await self.answer()


async def obey(peer, command):
    try:
        if command["op"] == "list":
            return {"ok": await peer.list_tools()}
        return {"ok": await peer.call(command["tool"], command["arguments"], command.get("meta"))}
    except Exception as error:
        return {"error": told(error)}


def told(error):
    """The error's words, those of every member of an exception group included."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"

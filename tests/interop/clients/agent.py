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

CALL_DEADLINE = 30


async def serve(connect):
    """Answer the driver's commands until it closes standard input."""
    connection = Connection(connect)
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        command = json.loads(line)
        try:
            with anyio.fail_after(CALL_DEADLINE):
                answer = {"ok": await connection.obey(command)}
        except Exception as error:  # whatever an SDK raises is an answer
            answer = {"error": told(error)}
        print(json.dumps(answer), flush=True)


class Connection:
    """The one SDK connection that is open, if any."""

    def __init__(self, connect):
        self.connect = connect
        self.stack = contextlib.AsyncExitStack()
        self.peer = None

    async def obey(self, command):
        match command["op"]:
            case "open":
                self.stack = contextlib.AsyncExitStack()
                self.peer = await self.connect(self.stack, command["endpoint"])
                return self.peer.server()
            case "list":
                return await self.peer.list_tools()
            case "call":
                return await self.peer.call(command["tool"], command["arguments"], command.get("meta"))
            case "close":
                await self.close()

    async def close(self):
        """Leave the SDK's contexts. A broken connection may complain on its way out: the driver expects that."""
        with contextlib.suppress(Exception):
            await self.stack.aclose()


def told(error):
    """The error's words, those of every member of an exception group included."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"

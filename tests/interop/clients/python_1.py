"""A client on the official Python SDK, line 1.x: handshake revisions only."""

from datetime import timedelta

import agent
import anyio
import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

CALL_TIMEOUT = timedelta(seconds=10)


class Peer:
    def __init__(self, session, greeting):
        self.session = session
        self.greeting = greeting

    def server(self):
        return {"protocol": self.greeting.protocolVersion, "greeting": plain(self.greeting)}

    async def list_tools(self):
        return plain(await self.session.list_tools())

    async def call(self, tool, arguments, meta):
        return plain(await self.session.call_tool(tool, arguments, read_timeout_seconds=CALL_TIMEOUT, meta=meta))


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def connect(stack, endpoint):
    streams = await stack.enter_async_context(await transport(stack, endpoint))
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    return Peer(session, await session.initialize())


async def transport(stack, endpoint):
    if "command" in endpoint:
        command, *args = endpoint["command"]
        return stdio_client(StdioServerParameters(command=command, args=args))
    http = await stack.enter_async_context(httpx.AsyncClient(headers=endpoint["headers"], timeout=10))
    return streamable_http_client(endpoint["url"], http_client=http)


if __name__ == "__main__":
    anyio.run(agent.serve, connect)

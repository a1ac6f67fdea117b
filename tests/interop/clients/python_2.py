"""A client on the official Python SDK, line 2.x.

The endpoint's `mode` is the SDK's own: `auto` discovers and prefers the newest revision, `legacy` is the handshake.
"""

import agent
import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

CALL_TIMEOUT = 10


class Peer:
    def __init__(self, client):
        self.client = client

    def server(self):
        session = self.client.session
        greeting = session.discover_result or session.initialize_result
        return {"protocol": self.client.protocol_version, "greeting": plain(greeting)}

    async def list_tools(self):
        return plain(await self.client.list_tools())

    async def call(self, tool, arguments, meta):
        return plain(await self.client.call_tool(tool, arguments, meta=meta))


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def connect(stack, endpoint):
    server = await reach(stack, endpoint)
    client = Client(server, mode=endpoint["mode"], read_timeout_seconds=CALL_TIMEOUT)
    return Peer(await stack.enter_async_context(client))


async def reach(stack, endpoint):
    if "command" in endpoint:
        command, *args = endpoint["command"]
        return StdioServerParameters(command=command, args=args)
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=endpoint["headers"], timeout=10))
    return streamable_http_client(endpoint["url"], http_client=http)


if __name__ == "__main__":
    anyio.run(agent.serve, connect)

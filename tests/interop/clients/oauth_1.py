"""A client on the official Python SDK, line 1.x, that gets its tokens by itself."""

import agent
import anyio
import httpx
from browser import REDIRECT, Browser, Storage
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from python_1 import Peer


async def connect(stack, endpoint):
    browser = Browser()

    async def sent_back():
        return browser.back["code"], browser.back.get("state")

    auth = OAuthClientProvider(
        server_url=endpoint["url"],
        client_metadata=OAuthClientMetadata(client_name="interop", redirect_uris=[REDIRECT], token_endpoint_auth_method="none"),
        storage=Storage(),
        redirect_handler=browser.open,
        callback_handler=sent_back,
    )
    http = await stack.enter_async_context(httpx.AsyncClient(auth=auth, timeout=10))
    streams = await stack.enter_async_context(streamable_http_client(endpoint["url"], http_client=http))
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    return Peer(session, await session.initialize())


if __name__ == "__main__":
    anyio.run(agent.serve, connect)

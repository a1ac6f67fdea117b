"""A client on the official Python SDK, line 2.x, that gets its tokens by itself."""

import agent
import anyio
import httpx2
from browser import REDIRECT, Browser, Storage
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from python_2 import CALL_TIMEOUT, Peer


async def connect(stack, endpoint):
    browser = Browser()

    async def sent_back():
        return AuthorizationCodeResult(code=browser.back["code"], state=browser.back.get("state"))

    auth = OAuthClientProvider(
        server_url=endpoint["url"],
        client_metadata=OAuthClientMetadata(client_name="interop", redirect_uris=[REDIRECT], token_endpoint_auth_method="none"),
        storage=Storage(),
        redirect_handler=browser.open,
        callback_handler=sent_back,
    )
    http = await stack.enter_async_context(httpx2.AsyncClient(auth=auth, timeout=10))
    transport = streamable_http_client(endpoint["url"], http_client=http)
    client = Client(transport, mode=endpoint["mode"], read_timeout_seconds=CALL_TIMEOUT)
    return Peer(await stack.enter_async_context(client))


if __name__ == "__main__":
    anyio.run(agent.serve, connect)

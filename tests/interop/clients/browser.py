"""The user's part of the code grant: opens the authorization page, and is sent back with a code at once."""

import http.client
from urllib.parse import parse_qs, urlsplit

REDIRECT = "http://127.0.0.1:1/callback"


class Browser:
    def __init__(self):
        self.back = {}

    async def open(self, address):
        url = urlsplit(address)
        connection = http.client.HTTPConnection(url.netloc, timeout=10)
        connection.request("GET", f"{url.path}?{url.query}")
        location = connection.getresponse().headers["Location"]
        self.back = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


class Storage:
    """Tokens and registration, kept in memory."""

    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client

"""The OAuth story: an SDK's own client finds out where tokens come from, gets one to read with, and steps up to write.

The server trusts an authorization server that is started here; nobody gives the client a token.
"""

import contextlib
import json
import socket
import subprocess

from processes import START_DEADLINE, STOP_DEADLINE, Client, HttpServer, Lines
from story import TOOL, need

READ, WRITE = "automation:read", "automation:write"
EDIT = {"request_id": "edit-oauth", "id": 1, "expected_version": 1, "interval_minutes": 30}


class AuthorizationServer:
    """The authorization server, from `__enter__` to `__exit__`."""

    def __init__(self, python, program):
        self.command = [str(python), str(program)]

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, **pipes)
        self.lines = Lines(self.process.stdout)
        self.issuer = (self.lines.next(START_DEADLINE) or "").strip()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def asked(self):
        """The next request for authorization that a client has made."""
        return json.loads(self.lines.next(START_DEADLINE))


def trust(example, issuer):
    """Let the example trust the issuer alone, under a port that is known before the server starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tools = example.config.read_text().split("[[auth.token]]")[0]
    resource = f"http://127.0.0.1:{port}/mcp"
    example.config.write_text(f"""{tools}
[auth]
first_scopes = ["{READ}"]

[[auth.jwt]]
issuer    = "{issuer}"
audience  = "{resource}"
jwks      = "{issuer}/jwks"
workspace = "workspace_id"
""")
    return port, resource


def play(name, mode, command, python, example, tally):
    """The steps, in order; what follows a failed step is not reached."""
    program = command[-1].parent / "authorization_server.py"
    with AuthorizationServer(python, program) as provider:
        port, resource = trust(example, provider.issuer)
        with HttpServer(example, port) as server, Client(command, example.folder) as client:
            story = Story(client, provider, {"mode": mode, "url": server.url}, resource)
            going = True
            for step in (story.connect, story.read, story.step_up, story.replay):
                if going:
                    going = tally.run(f"{name}/{step.__name__}", step)
                else:
                    tally.fail(f"{name}/{step.__name__}", "not reached")


class Story:
    """One client's walk."""

    def __init__(self, client, provider, endpoint, resource):
        self.client = client
        self.provider = provider
        self.endpoint = endpoint
        self.resource = resource

    def connect(self):
        self.client.get(op="open", endpoint=self.endpoint)
        asked = self.provider.asked()
        need(asked == {"scope": READ, "resource": self.resource}, "what is asked for at first", asked)
        listed = [tool["name"] for tool in self.client.get(op="list")["tools"]]
        need(listed == ["get_automation"], "tools that the scope allows", listed)

    def read(self):
        row = self.call("get_automation", {"id": 1})["result"]
        need(row["version"] == 1, "the row", row)

    def step_up(self):
        reply = self.call(TOOL, EDIT)
        need(reply["replayed"] is False and reply["result"]["version"] == 2, "the edit", reply)
        asked = self.provider.asked()
        need(set(asked["scope"].split()) == {READ, WRITE}, "what is asked for to write", asked)
        need(asked["resource"] == self.resource, "for which resource", asked)

    def replay(self):
        need(self.call(TOOL, EDIT)["replayed"] is True, "the replay", "fresh")
        row = self.call("get_automation", {"id": 1})["result"]
        need(row["version"] == 2, "the row, read with the wider token", row)

    def call(self, tool, arguments):
        return self.client.get(op="call", tool=tool, arguments=arguments)["structuredContent"]

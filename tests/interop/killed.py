"""An agent edits through `counterfoil proxy` while the server and the proxy are killed in turn.

The agent is an SDK client that starts the proxy over stdio; a gate stands between the proxy and the server. At a moment
of every edit the gate kills one of the two (SIGKILL) and starts the server again; the proxy is started again by the
agent, which does what a model does: it calls again with the same arguments. In the end every intended edit has been
done exactly once, and the operations in the journal have all ended.
"""

import http.client
import json
import os
import signal
import sqlite3
import subprocess

from processes import HttpServer
from proxy import Proxy, calls, send
from story import TOOL, need

CALLS = 8  # of one edit, the first included
ROW = 1

# Who is killed, and when: the request has come to the gate and goes no further; it has just been sent on to the server;
# the answer has come to the gate and goes no further. `between` is before the edit is called. What is `late` is held,
# and sent on after the edit has been done by another try.
MOMENTS = [
    ("server", "before"),
    ("proxy", "before"),
    ("server", "during"),
    ("proxy", "during"),
    ("server", "after"),
    ("proxy", "after"),
    ("server", "between"),
    ("proxy", "between"),
    ("proxy", "late"),
    ("both", "during"),
    ("both", "after"),
    ("nobody", "after"),
]


class Gate(Proxy):
    """The way from the proxy to the server; it strikes once for every time that it is set."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self.moment = None
        self.strike = None
        self.late = []
        self.answers = []

    def set(self, moment, strike):
        self.moment, self.strike = moment, strike

    def struck(self, moment):
        """Strike if this is the moment that was set; whether it was."""
        if self.moment != moment:
            return False
        self.moment = None
        self.strike()
        return True

    def pass_on(self, request, body, upstream):
        if not calls(TOOL, body) or self.moment is None:
            return super().pass_on(request, body, upstream)
        headers = list(self.headers(request.headers))
        if self.moment == "late":
            self.late.append((body, headers))
        if self.struck("before") or self.struck("late"):
            return
        send(upstream, request, body, headers)
        if not self.struck("during"):
            self.answers.append(upstream.getresponse().read())
            self.struck("after")


class Killed:
    """The story: `steps` in order, each an edit with its disaster, then the table."""

    def __init__(self, client, protocol, mode, example, token):
        self.client, self.protocol, self.mode, self.example = client, protocol, mode, example
        self.journal = example.folder / "journal.db"
        self.mark = example.folder / "proxy.pid"
        self.token = example.folder / "token"
        self.token.write_text(token)
        self.done = []

    def __enter__(self):
        self.server = HttpServer(self.example).__enter__()
        self.port = int(self.server.url.split(":")[2].split("/")[0])
        self.gate = Gate(self.server.url).__enter__()
        return self

    def __exit__(self, *_):
        self.gate.__exit__()
        self.server.kill()

    def steps(self):
        edits = [(f"{who}-{when}", lambda w=(who, when): self.edit(*w)) for who, when in MOMENTS]
        return [("connect", self.open), *edits, ("table", self.table), ("journal", self.ended)]

    def open(self):
        """Start the proxy through the SDK; the shell leaves the id of the process that it becomes."""
        remember = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.mark)]
        proxy = [self.example.binary, "proxy", "--upstream", self.gate.url]
        options = ["--token-file", str(self.token), "--journal", str(self.journal)]
        endpoint = {"mode": self.mode, "command": [*remember, *proxy, *options]}
        told = self.client.get(op="open", endpoint=endpoint)
        need(told["protocol"] == self.protocol, "negotiated revision", told["protocol"])

    def edit(self, who, when):
        strike = {"server": self.kill_server, "proxy": self.kill_proxy, "both": self.kill_both, "nobody": lambda: None}[who]
        if when == "between":
            strike()
        else:
            self.gate.set(when, strike)
        version = len(self.done) + 1
        arguments = {"id": ROW, "expected_version": version, "interval_minutes": 10 + version}
        reply = self.call_until_done(arguments)
        need(self.gate.moment is None, "the moment never came")
        need(reply["result"] == {"id": ROW, "version": version + 1, "interval_minutes": 10 + version}, "result", reply)
        self.done.append(reply["request_id"])
        for body, headers in self.gate.late:
            self.arrive_late(body, headers)
        self.gate.late.clear()
        need(all(b'"replayed"' in answer for answer in self.gate.answers), "lost before it was done", when)

    def call_until_done(self, arguments):
        """What a model does: as long as it is not told an outcome it calls again, with the same arguments."""
        for _ in range(CALLS):
            kind, answer = self.client.ask(op="call", tool=TOOL, arguments=arguments)
            if kind == "error":
                self.client.ask(op="close")
                self.open()
                continue
            if not answer.get("isError"):
                return answer["structuredContent"]
            code = answer.get("structuredContent", {}).get("error", {}).get("code")
            need(code == "outcome_unknown", "refused", answer)
        need(False, "no outcome in", CALLS, "calls; the last said", answer)

    def kill_server(self):
        """SIGKILL, and another one on the same database and port."""
        self.server.kill()
        self.server = HttpServer(self.example, self.port).__enter__()

    def kill_proxy(self):
        os.kill(int(self.mark.read_text()), signal.SIGKILL)

    def kill_both(self):
        self.kill_proxy()
        self.kill_server()

    def arrive_late(self, body, headers):
        """A request of a proxy that is long dead comes to the server."""
        connection = http.client.HTTPConnection(self.gate.upstream.netloc, timeout=30)
        connection.request("POST", self.gate.upstream.path, body, dict(headers))
        answer = connection.getresponse().read()
        connection.close()
        need(b'"replayed":true' in answer, "what came late was not recognised:", answer.decode())

    def table(self):
        """Each intended edit once: in the row's version, and in the receipts."""
        database = sqlite3.connect(f"file:{self.example.folder / 'automations.db'}?mode=ro", uri=True)
        (row,) = database.execute("SELECT version, interval_minutes FROM automations WHERE id = ?", (ROW,))
        receipts = [id for (id,) in database.execute("SELECT request_id FROM counterfoil_receipts ORDER BY committed_at")]
        database.close()
        edits = len(MOMENTS)
        need(row == (edits + 1, 10 + edits), "the row", row)
        need(receipts == self.done, "receipts", receipts, "replies", self.done)
        need(len(set(receipts)) == edits, "an id stands for two edits:", receipts)

    def ended(self):
        """Nothing is left open, and the journal holds the edits and no other operation."""
        self.client.ask(op="close")
        journal = [self.example.binary, "journal", "list", "--journal", str(self.journal)]
        listed = subprocess.run(journal, capture_output=True, text=True, timeout=30, check=True).stdout
        entries = [json.loads(line) for line in listed.splitlines()]
        states = {entry["request_id"]: entry["state"] for entry in entries}
        need(states == dict.fromkeys(self.done, "replied"), "journal", states)

"""Interoperability: official MCP SDKs, at locked versions, against a real server.

    python3 tests/interop/run.py --bin target/debug/counterfoil [--only NAME]

For every client, transport and protocol revision a fresh copy of the example is served and the client, in a process of
its own, goes through the story of `story.py`. Then each edits through the proxy while server and proxy are killed.
Servers that others wrote are met through the proxy. The conformance suite comes last. One line a case: `ok NAME`, or
`FAIL NAME: why`; the last line counts them, and the exit code is 1 if any failed.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import conformance
import environments
import foreign
import oauth
from killed import Killed
from processes import Client, Example, Failed, HttpServer
from proxy import LossyProxy
from story import TOOL, Story

EXAMPLE = environments.HERE.parents[1] / "examples" / "automations"
TOKEN = "alice-local-token"


@dataclass
class Case:
    """One client on one transport at one protocol revision."""

    client: str
    transport: str
    mode: str
    protocol: str

    @property
    def name(self):
        return f"{self.client}/{self.transport}/{self.protocol}"


CASES = [
    Case(client, transport, mode, protocol)
    for client, mode, protocol in [
        ("python-1", "legacy", "2025-11-25"),
        ("python-2", "legacy", "2025-11-25"),
        ("python-2", "auto", "2026-07-28"),
        ("typescript-1", "legacy", "2025-11-25"),
        ("typescript-2", "legacy", "2025-11-25"),
        ("typescript-2", "auto", "2026-07-28"),
    ]
    for transport in ("http", "stdio")
]


OAUTH = [("1", "legacy", "2025-11-25"), ("2", "legacy", "2025-11-25"), ("2", "auto", "2026-07-28")]


class Tally:
    """Prints a line a case and counts them."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def run(self, name, step):
        """Whether the step held."""
        try:
            step()
        except Exception as why:  # a case that cannot even run has failed
            self.fail(name, why if isinstance(why, Failed) else f"{type(why).__name__}: {why}")
            return False
        self.passed += 1
        print(f"ok {name}", flush=True)
        return True

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL {name}: {why}", flush=True)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `with` still ends what it started
    tally = Tally()
    for case in CASES:
        if arguments.only in case.name:
            with fresh_example(arguments.bin) as example:
                play(case, example, tally)
    for case in CASES:
        name = f"killed/{case.client}/{case.protocol}"
        if case.transport == "stdio" and arguments.only in name:
            with fresh_example(arguments.bin) as example:
                kill(name, case, example, tally)
    with tempfile.TemporaryDirectory(prefix="counterfoil-interop-") as folder:
        for name, case in foreign.cases(arguments.bin, Path(folder)):
            if arguments.only in name:
                tally.run(name, case)
    for client, mode, protocol in OAUTH:
        name = f"oauth-{client}/http/{protocol}"
        if arguments.only in name:
            with fresh_example(arguments.bin) as example:
                get_tokens(name, client, mode, example, tally)
    if arguments.only in "conformance":
        with fresh_example(arguments.bin) as example:
            tally.run("conformance", lambda: conformance.run(example, TOKEN))
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed or not tally.passed else 0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=lambda path: Path(path).resolve(strict=True))
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    return parser.parse_args()


@contextlib.contextmanager
def fresh_example(binary):
    with tempfile.TemporaryDirectory(prefix="counterfoil-interop-") as folder:
        yield Example(EXAMPLE, folder, binary)


def play(case, example, tally):
    """Run a case's story; a case that cannot even start has failed."""
    transports = {"http": over_http, "stdio": over_stdio}
    try:
        transports[case.transport](case, example, tally)
    except Exception as why:
        tally.fail(f"{case.name}/setup", f"{type(why).__name__}: {why}")


def get_tokens(name, line, mode, example, tally):
    """Run the OAuth story of the Python SDK's line; one that cannot even start has failed."""
    try:
        python = environments.python(f"python-{line}")
        command = [python, environments.HERE / "clients" / f"oauth_{line}.py"]
        oauth.play(name, mode, command, python, example, tally)
    except Exception as why:
        tally.fail(f"{name}/setup", f"{type(why).__name__}: {why}")


def over_http(case, example, tally):
    with HttpServer(example) as server, LossyProxy(server.url, TOOL) as proxy:
        endpoint = {"mode": case.mode, "headers": {"Authorization": f"Bearer {TOKEN}"}}

        def lost():
            return [json.loads(answer) for _, answer in proxy.lost]

        tell(case, example, tally, {**endpoint, "url": server.url}, {**endpoint, "url": proxy.url}, lost)
        tally.run(f"{case.name}/stop", server.stop)


def over_stdio(case, example, tally):
    mark = example.folder / "lost-answers"
    command = example.stdio_command()
    lossy = [sys.executable, str(environments.HERE / "lossy_stdio.py"), TOOL, str(mark), *command]

    def lost():
        return [json.loads(line) for line in mark.read_text().splitlines()] if mark.exists() else []

    tell(case, example, tally, {"mode": case.mode, "command": command}, {"mode": case.mode, "command": lossy}, lost)


def kill(name, case, example, tally):
    """Edit through the proxy while server and proxy are killed; a case that cannot even start has failed."""
    try:
        with Client(command_of(case.client), example.folder) as client:
            with Killed(client, case.protocol, case.mode, example, TOKEN) as story:
                walk(name, story.steps(), tally)
    except Exception as why:
        tally.fail(f"{name}/setup", f"{type(why).__name__}: {why}")


def tell(case, example, tally, plain, lossy, lost):
    with Client(command_of(case.client), example.folder) as client:
        walk(case.name, Story(client, case.protocol, plain, lossy, lost).steps(), tally)


def walk(story, steps, tally):
    """Run the steps in order; what follows a failed step is not reached and says so."""
    going = True
    for name, step in steps:
        if going:
            going = tally.run(f"{story}/{name}", step)
        else:
            tally.fail(f"{story}/{name}", "not reached")


def command_of(client):
    """The command of a client program, its environment installed."""
    clients = environments.HERE / "clients"
    if client.startswith("python"):
        return [environments.python(client), clients / f"{client.replace('-', '_')}.py"]
    modules = environments.node_modules(client)
    program = f"{client.replace('-', '_')}.mjs"
    for file in (program, "agent.mjs"):  # beside node_modules, where Node looks for imports from
        shutil.copy(clients / file, modules / file)
    return [environments.node(), modules / program]


main()

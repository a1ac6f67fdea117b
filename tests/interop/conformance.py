"""The protocol's own conformance suite, run against the server.

The suite means a server with fixture tools, prompts and resources of its own; what does not apply to this server, or
is known to fail, is named with its reason in `conformance-expected-failures.yml`. A scenario listed there that passes
fails the run too, so the list cannot go stale. The suite can send no bearer token: a proxy adds it.
"""

import subprocess

import environments
from processes import Failed, HttpServer
from proxy import BearerProxy

EXPECTED = environments.HERE / "conformance-expected-failures.yml"
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
DEADLINE = 300


def run(example, token):
    suite = environments.node_modules("conformance") / SUITE
    with HttpServer(example) as server, BearerProxy(server.url, token) as proxy:
        command = [environments.new_node(), suite, "server", "--url", proxy.url, "--suite", "all"]
        command += ["--expected-failures", EXPECTED, "--output-dir", example.folder / "conformance"]
        done = subprocess.run(
            [str(part) for part in command],
            cwd=example.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
        )
    if done.returncode:
        raise Failed(summary(done.stdout))


def summary(output):
    """The end of what the suite said, where it lists every scenario and judges it by the baseline."""
    at = output.rfind("=== SUMMARY ===")
    return output[at if at >= 0 else -3000 :].strip()

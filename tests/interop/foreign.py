"""Servers that others wrote, at locked versions, behind `counterfoil proxy`.

Each is met twice, by itself and through the proxy: both must list the same tools, word for word. Then one call that
changes something and one that reads go through the proxy, and what was changed must be there.
"""

import json
import subprocess
import threading

import environments
from processes import Failed

DEADLINE = 60
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}


def cases(binary, folder):
    """The names and functions of the cases."""
    return [(f"foreign/{name}", lambda name=name: meet(name, binary, folder)) for name in SERVERS]


def filesystem(folder):
    path = str(folder / "note.txt")
    return [str(folder)], ("write_file", {"path": path, "content": "1.0"}), ("read_text_file", {"path": path}), "1.0"


def memory(_folder):
    entity = {"name": "kept", "entityType": "thing", "observations": ["once"]}
    return [], ("create_entities", {"entities": [entity]}), ("read_graph", {}), "once"


def everything(_folder):
    return ["stdio"], ("toggle-simulated-logging", {}), ("echo", {"message": "heard"}), "heard"


SERVERS = {"everything": everything, "filesystem": filesystem, "memory": memory}


def meet(name, binary, folder):
    modules = environments.node_modules("foreign") / "node_modules"
    program = modules / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    arguments, write, read, expected = SERVERS[name](folder)
    command = [environments.node(), str(program), *arguments]
    environment = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
    proxy = [str(binary), "proxy", "--journal", str(folder / "journal.db"), "--", *command]
    (alone,) = talk(command, environment, [("tools/list", {})])
    listed, wrote, got = talk(proxy, environment, [("tools/list", {}), call(*write), call(*read)])
    if listed != alone:
        raise Failed(f"the listing through the proxy differs: {json.dumps(listed)[:500]}")
    if wrote.get("isError") or expected not in json.dumps(got):
        raise Failed(f"written {json.dumps(wrote)[:300]}, read {json.dumps(got)[:300]}")


def call(tool, arguments):
    return "tools/call", {"name": tool, "arguments": arguments}


def talk(command, environment, requests):
    """The results of `requests`, one after the other, of a server that then must leave by itself."""
    pipe = subprocess.PIPE
    whole = {**environments.os.environ, **environment}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=whole) as server:
        late = threading.Timer(DEADLINE, server.kill)
        late.start()
        try:
            ask(server, 0, "initialize", HELLO)
            say(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            results = [ask(server, id, *request) for id, request in enumerate(requests, 1)]
            server.stdin.close()
            server.wait(DEADLINE)
            return results
        finally:
            late.cancel()
            server.kill()


def say(server, message):
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def ask(server, id, method, params):
    say(server, {"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == id and "method" not in message:
            if "result" not in message:
                raise Failed(f"{method}: {line[:500]}")
            return message["result"]
    raise Failed(f"{method}: the server has gone")

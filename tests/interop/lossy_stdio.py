"""A stdio server whose answer to one call never arrives.

`lossy_stdio.py TOOL MARK COMMAND...` runs the command between the client and itself and passes every line on, until
the command has answered the first call of TOOL: that answer is written to MARK instead of the client, the command
is killed and the stream ends. What the command committed before it answered stays committed.
"""

import contextlib
import json
import subprocess
import sys
import threading


def main():
    tool, mark, *command = sys.argv[1:]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    doomed = set()
    threading.Thread(target=forward_requests, args=(server, tool, doomed), daemon=True).start()
    for line in server.stdout:
        message = parsed(line)
        if "method" not in message and message.get("id") in doomed:
            with open(mark, "ab") as kept:
                kept.write(line)
            server.kill()
            break
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    server.wait()


def forward_requests(server, tool, doomed):
    """Pass the client's lines on, remembering which ids call the tool before the server can answer them."""
    with contextlib.suppress(OSError):  # the server is gone: the end of its output says so
        for line in sys.stdin.buffer:
            forward(server, tool, doomed, line)
        server.stdin.close()


def forward(server, tool, doomed, line):
    message = parsed(line)
    if message.get("method") == "tools/call" and message.get("params", {}).get("name") == tool:
        doomed.add(message["id"])
    server.stdin.write(line)
    server.stdin.flush()


def parsed(line):
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


main()

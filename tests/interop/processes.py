"""The processes that the driver starts, each waited for with a deadline and each ended by the one who started it."""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

START_DEADLINE = 30
STOP_DEADLINE = 15
ANSWER_DEADLINE = 45
LISTENING = re.compile(r"listening on (http://\S+)")


class Failed(Exception):
    """A case that did not hold, with the why that the driver prints."""


class Lines:
    """The lines of a pipe, read in the background so that waiting for one can have a deadline."""

    def __init__(self, pipe):
        self.seen = []
        self.waiting = queue.Queue()
        self.ended = threading.Event()
        threading.Thread(target=self.read, args=(pipe,), daemon=True).start()

    def read(self, pipe):
        for line in pipe:
            self.seen.append(line)
            self.waiting.put(line)
        self.waiting.put(None)
        self.ended.set()

    def next(self, deadline):
        """The next line, or None when the pipe has ended."""
        try:
            return self.waiting.get(timeout=deadline)
        except queue.Empty:
            raise Failed(f"nothing said within {deadline} s; before: {self.tail()}") from None

    def tail(self):
        return "".join(self.seen[-15:]).strip() or "(nothing)"


class Example:
    """A fresh copy of the example in a folder of its own, so that no case sees another's database."""

    def __init__(self, source, folder, binary):
        self.folder = Path(folder) / "automations"
        shutil.copytree(source, self.folder, ignore=shutil.ignore_patterns("*.db", "*.db-*"))
        self.config = self.folder / "counterfoil.toml"
        self.binary = str(binary)

    def stdio_command(self):
        return [self.binary, "serve", str(self.config), "--stdio"]


class HttpServer:
    """The server on a free loopback port, from `__enter__` to `__exit__`; `stop` also tells how it went."""

    def __init__(self, example, port=0):
        self.command = [example.binary, "serve", str(example.config), "--listen", f"127.0.0.1:{port}"]
        self.folder = example.folder

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self.stderr = Lines(self.process.stderr)
        try:
            self.url = self.wait_until_listening()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()

    def wait_until_listening(self):
        while (line := self.stderr.next(START_DEADLINE)) is not None:
            if found := LISTENING.search(line):
                return found.group(1)
        raise Failed(f"the server ended before it listened: {self.stderr.tail()}")

    def stop(self):
        self.process.terminate()
        try:
            code = self.process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            raise Failed(f"still running {STOP_DEADLINE} s after SIGTERM: {self.stderr.tail()}") from None
        if code != 0:
            raise Failed(f"exit code {code} after SIGTERM: {self.stderr.tail()}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Client:
    """One SDK client in a process of its own, told what to do line by line."""

    def __init__(self, command, folder):
        self.command = [str(part) for part in command]
        self.folder = folder

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.answers = Lines(self.process.stdout)
        self.stderr = Lines(self.process.stderr)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.answers.ended.wait(STOP_DEADLINE)
        # Its own session holds itself and any server that it left behind. It is not reaped yet, so the id is still its.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, **command):
        """The client's answer: `("ok", value)` or `("error", words)`."""
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Failed(f"the client is gone: {self.stderr.tail()}") from None
        line = self.answers.next(ANSWER_DEADLINE)
        if line is None:
            raise Failed(f"the client ended: {self.stderr.tail()}")
        return next(iter(json.loads(line).items()))

    def get(self, **command):
        kind, value = self.ask(**command)
        if kind == "error":
            raise Failed(f"{command['op']} failed: {value}")
        return value

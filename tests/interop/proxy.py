"""A small HTTP proxy on the loopback interface, for two kinds of harm and help.

`LossyProxy` forwards every request and, for a call of one tool, waits until the server has answered completely, keeps
that answer for the driver to look at, and closes the client's connection without a byte of it. `BearerProxy` adds an
`Authorization` header, for a client that cannot be told to send one.
"""

import contextlib
import http.client
import http.server
import json
import threading
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
UPSTREAM_TIMEOUT = 30


class Proxy:
    """Listens on a free port from `__enter__` to `__exit__`; `url` stands for the upstream's."""

    def __init__(self, upstream):
        self.upstream = urlsplit(upstream)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.authority = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.authority}{self.upstream.path}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def headers(self, incoming):
        """The headers to send on; our own authority becomes the upstream's, any other is left as it came."""
        for name, value in incoming.items():
            if name.lower() in HOP_BY_HOP:
                continue
            if name.lower() in ("host", "origin"):
                value = value.replace(self.authority, self.upstream.netloc)
            yield name, value

    def pass_on(self, request, body, upstream):
        """Send a request on and its answer back."""
        send(upstream, request, body, self.headers(request.headers))
        relay(upstream.getresponse(), request)


class BearerProxy(Proxy):
    def __init__(self, upstream, token):
        super().__init__(upstream)
        self.token = token

    def headers(self, incoming):
        yield from super().headers(incoming)
        if "authorization" not in incoming:
            yield "Authorization", f"Bearer {self.token}"


class LossyProxy(Proxy):
    def __init__(self, upstream, tool):
        super().__init__(upstream)
        self.tool = tool
        self.lost = []

    def pass_on(self, request, body, upstream):
        if not calls(self.tool, body):
            return super().pass_on(request, body, upstream)
        send(upstream, request, body, self.headers(request.headers))
        answer = upstream.getresponse()
        self.lost.append((answer.status, answer.read().decode("utf-8", "replace")))


def calls(tool, body):
    """Whether a request is a call of the tool."""
    try:
        message = json.loads(body)
        return message["method"] == "tools/call" and message["params"]["name"] == tool
    except (ValueError, TypeError, KeyError):
        return False


def handler(proxy):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            self.close_connection = True  # one request a connection: its end is the end of the answer
            body = read_body(self)
            upstream = http.client.HTTPConnection(proxy.upstream.netloc, timeout=UPSTREAM_TIMEOUT)
            with contextlib.closing(upstream), contextlib.suppress(OSError, http.client.HTTPException):
                proxy.pass_on(self, body, upstream)

        do_GET = do_POST = do_DELETE = forward

        def log_message(self, *_):
            pass

    return Handler


def read_body(request):
    if request.headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join(chunks(request.rfile))
    return request.rfile.read(int(request.headers.get("content-length", 0)))


def chunks(stream):
    while size := int(stream.readline().split(b";")[0], 16):
        yield stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass


def send(upstream, request, body, headers):
    upstream.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        upstream.putheader(name, value)
    upstream.putheader("Content-Length", str(len(body)))
    upstream.endheaders(body)


def relay(answer, request):
    """Pass an answer on as it arrives."""
    request.send_response_only(answer.status, answer.reason)
    for name, value in answer.getheaders():
        if name.lower() not in HOP_BY_HOP:
            request.send_header(name, value)
    request.send_header("Connection", "close")
    request.end_headers()
    while piece := answer.read1(65536):
        request.wfile.write(piece)
        request.wfile.flush()

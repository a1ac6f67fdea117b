"""The smallest OAuth 2.1 authorization server: one user who says yes to everything, on a free loopback port.

Metadata (RFC 8414), dynamic registration (RFC 7591), the code grant with PKCE (RFC 7636), resource indicators (RFC 8707)
and a key set (RFC 7517). Its first line of output is its issuer; every later one is a request for authorization, as JSON.
"""

import base64
import hashlib
import json
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "/as"
WELL_KNOWN = f"/.well-known/oauth-authorization-server{ISSUER}"


class Handler(BaseHTTPRequestHandler):
    """The endpoints; what was granted is kept in `codes` until it is fetched."""

    codes = {}
    issuer = ""

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == WELL_KNOWN:
            return self.answer(200, self.metadata())
        if url.path == f"{ISSUER}/jwks":
            return self.answer(200, {"keys": [public_key()]})
        if url.path == f"{ISSUER}/authorize":
            return self.authorize({name: values[0] for name, values in parse_qs(url.query).items()})
        return self.answer(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == f"{ISSUER}/register":
            return self.answer(201, {**json.loads(body), "client_id": "sdk", "token_endpoint_auth_method": "none"})
        if self.path == f"{ISSUER}/token":
            return self.token({name: values[0] for name, values in parse_qs(body).items()})
        return self.answer(404, {})

    def metadata(self):
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
        }

    def authorize(self, asked):
        print(json.dumps({"scope": asked.get("scope"), "resource": asked.get("resource")}), flush=True)
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        self.send_response(302)
        back = {"code": code, "state": asked.get("state", "")}
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode(back)}")
        self.end_headers()

    def token(self, sent):
        granted = self.codes.pop(sent.get("code"), None)
        proof = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        if granted is None or base64.urlsafe_b64encode(proof).rstrip(b"=").decode() != granted["code_challenge"]:
            return self.answer(400, {"error": "invalid_grant"})
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": granted["resource"], "sub": "alice", "workspace_id": "team-a"}
        claims |= {"scope": granted.get("scope", ""), "iat": now, "exp": now + 300}
        token = jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "first", "typ": "at+jwt"})
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": claims["scope"]}
        return self.answer(200, answer)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing: standard output is for the driver."""


def public_key():
    numbers = KEY.public_key().public_numbers()
    part = lambda number: base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()
    return {"kty": "EC", "crv": "P-256", "kid": "first", "use": "sig", "x": part(numbers.x), "y": part(numbers.y)}


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Handler.issuer = f"http://127.0.0.1:{server.server_port}{ISSUER}"
print(Handler.issuer, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()  # until the driver closes it

"""An issuer of tokens for the tests: its own RSA keys, served as a JSON Web Key Set on the loopback."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "https://billing.example/push"
ACCOUNT = "push@shop.iam.gserviceaccount.com"


class Issuer:
    """`fetches` counts who asked for the keys; `answer` replaces them by another status and body; `max_age` is what it
    says of how long they are good."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.extra: list[dict[str, object]] = []
        self.fetches = 0
        self.max_age = 3_600
        self.answer: tuple[int, bytes] | None = None
        self.url = ""
        self.add("first")

    def add(self, kid: str, *, bits: int = 2048) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def token(self, *, kid: str = "first", now: float | None = None, **other: object) -> str:
        """One that Google would give to the right sender, unless claims are said differently; None leaves one out."""
        begin = int(time.time() if now is None else now)
        claims: dict[str, object] = {
            "iss": "https://accounts.google.com",
            "aud": AUDIENCE,
            "azp": "113774264463038321964",
            "sub": "113774264463038321964",
            "email": ACCOUNT,
            "email_verified": True,
            "iat": begin,
            "exp": begin + 3_600,
            **other,
        }
        said = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(said, self.keys[kid], algorithm="RS256", headers={"kid": kid})

    def document(self) -> bytes:
        keys: list[dict[str, object]] = []
        for kid, key in self.keys.items():
            keys.append(
                {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": "RS256", "use": "sig"}
            )
        return json.dumps({"keys": [*self.extra, *keys]}).encode()


@contextlib.contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            status, body = issuer.answer or (200, issuer.document())
            self.send_response(status)
            self.send_header("Cache-Control", f"public, max-age={issuer.max_age}, must-revalidate")
            self.send_header("Content-Length", str(len(body)))
            if status in (301, 302):
                self.send_header("Location", f"{issuer.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """In silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

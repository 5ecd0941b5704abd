"""A provider of OpenID Connect for the tests: discovery, authorization, tokens and keys, with real signatures and real checks of PKCE."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.kit.asgi import serving

CLIENT, SECRET = "posthouse-console", "a-secret-of-the-client"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """`person` signs in at once. `claims` are said differently in the id token, None leaves one out; `sign` replaces how it is
    signed; `document` changes what discovery says; `broken` answers the token endpoint with this status."""

    def __init__(self, address: str) -> None:
        self.issuer = f"http://{address}"
        self.person: dict[str, object] = {"sub": "1", "email": "ana@example.com", "email_verified": True}
        self.claims: dict[str, object] = {}
        self.sign: Callable[[dict[str, object]], str] = self.signed
        self.document: dict[str, object] = {}
        self.broken: int | None = None
        self.secret = ""
        self.codes: dict[str, Mapping[str, str]] = {}
        self.exchanges = 0

    def signed(self, claims: dict[str, object]) -> str:
        return jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": "first"})

    async def discovery(self, _: Request) -> Response:
        said = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            **self.document,
        }
        return JSONResponse(said)

    async def keys(self, _: Request) -> Response:
        key = {**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "first", "alg": "RS256", "use": "sig"}
        return JSONResponse({"keys": [key]})

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 302)

    async def token(self, request: Request) -> Response:
        self.exchanges += 1
        form = dict(parse_qsl((await request.body()).decode()))
        asked = self.codes.pop(form["code"], None)
        if self.broken:
            return JSONResponse({"error": "broken"}, self.broken)
        if self.secret and request.headers.get("authorization") != _basic(CLIENT, self.secret):
            return JSONResponse({"error": "invalid_client"}, 401)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if asked is None or (form["redirect_uri"], challenge.decode()) != (
            asked["redirect_uri"],
            asked["code_challenge"],
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.person,
            **self.claims,
        }
        said = {name: value for name, value in claims.items() if value is not None}
        return JSONResponse({"access_token": "opaque", "token_type": "Bearer", "id_token": self.sign(said)})


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@contextlib.asynccontextmanager
async def providing() -> AsyncIterator[Provider]:
    listener = socket.create_server(("127.0.0.1", 0))
    provider = Provider(f"127.0.0.1:{listener.getsockname()[1]}")
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", provider.discovery),
            Route("/keys", provider.keys),
            Route("/authorize", provider.authorize),
            Route("/token", provider.token, methods=["POST"]),
        ]
    )
    async with serving(app, listener):
        yield provider

"""OpenID Connect: the authorization code flow with PKCE, state and nonce. What a sign-in needs to come back is in a sealed cookie of
the browser that began it: no other browser can end it, and a flood of beginnings costs nothing here."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

import httpx
import msgspec

from posthouse.clock import Clock
from posthouse.console.access.access import Oidc
from posthouse.console.access.discovery import Discovery, Provider, Unavailable, fetch
from posthouse.console.access.sessions import Claims
from posthouse.edges.oidc import Refused

WITHIN = 600.0
"""Seconds from the beginning of a sign-in to its end."""


class NotBegun(Refused):
    """Somebody comes back who never went, as any page elsewhere can have a browser do: nothing was asked of the provider."""


class Begun(msgspec.Struct, frozen=True):
    """A sign-in that has begun: what its end is checked against, and where the person wanted to go."""

    state: str
    nonce: str
    verifier: str
    to: str
    until: float


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class CodeFlow:
    """Sign-ins at one provider."""

    def __init__(self, oidc: Oidc, clock: Clock) -> None:
        self._oidc, self._clock = oidc, clock
        self._seal = secrets.token_bytes(32)
        self._ended: dict[str, float] = {}
        self._discovery = Discovery(oidc.issuer, oidc.client_id, clock, signs_in=True)

    async def begin(self, back: str, to: str) -> tuple[str, str]:
        """Where to send the browser, and what to give it as a cookie. Raises Unavailable."""
        provider, _ = await self._discovery.provider()
        begun = Begun(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            to,
            self._clock.monotonic() + WITHIN,
        )
        asked = {
            "response_type": "code",
            "client_id": self._oidc.client_id,
            "redirect_uri": back,
            "scope": " ".join(self._oidc.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": _base64(hashlib.sha256(begun.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        joined = "&" if "?" in provider.authorization_endpoint else "?"
        return f"{provider.authorization_endpoint}{joined}{urlencode(asked)}", self._sealed(begun)

    async def end(self, cookie: str, said: Mapping[str, str], back: str) -> tuple[Claims, str]:
        """Who signed in, and where they wanted to go. Raises Refused, NotBegun, Unavailable, or KeysUnavailable."""
        begun = self._opened(cookie)
        if begun is None or not hmac.compare_digest(said.get("state", "").encode(), begun.state.encode()):
            raise NotBegun("this sign-in was not begun by this browser, or too long ago")
        if begun.state in self._ended:
            raise Refused("this sign-in has ended before")
        if "iss" in said and said["iss"] != self._oidc.issuer:
            raise Refused("another provider answered")
        if "error" in said or not said.get("code"):
            raise Refused("the provider let nobody in")
        provider, signed = await self._discovery.provider()
        claims = await signed.claims(await self._exchanged(provider, said["code"], begun.verifier, back), begun.nonce)
        now = self._clock.monotonic()
        self._ended = {state: until for state, until in self._ended.items() if until > now} | {begun.state: begun.until}
        return claims, begun.to

    async def _exchanged(self, provider: Provider, code: str, verifier: str, back: str) -> str:
        """The id token for a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": verifier,
            "client_id": self._oidc.client_id,
        }
        auth = None
        if self._oidc.client_secret:
            if "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
                auth = httpx.BasicAuth(self._oidc.client_id, self._oidc.client_secret)
            else:
                form["client_secret"] = self._oidc.client_secret
        status, body = await fetch("POST", provider.token_endpoint, form, auth)
        if 400 <= status < 500:
            raise Refused(f"the provider refused the code ({status})")
        try:
            return msgspec.json.decode(body, type=_Tokens).id_token
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"the provider answered {status} without an id token") from error

    def _sealed(self, begun: Begun) -> str:
        said = _base64(msgspec.json.encode(begun))
        return f"{said}.{self._mac(said)}"

    def _opened(self, cookie: str) -> Begun | None:
        said, _, mac = cookie.partition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(said).encode()):
            return None
        begun = msgspec.json.decode(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)), type=Begun)
        return begun if self._clock.monotonic() <= begun.until else None

    def _mac(self, said: str) -> str:
        return _base64(hmac.digest(self._seal, said.encode(), "sha256"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

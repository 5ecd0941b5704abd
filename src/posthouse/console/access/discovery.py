"""Discovery: what a provider of OpenID Connect says of itself, and the tokens that it signs for one audience."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import httpx
import msgspec

from posthouse.clock import Clock
from posthouse.console.access.access import is_safe
from posthouse.console.access.signed import ALGORITHMS, Signed
from posthouse.edges.keys import KeySet

log = logging.getLogger("posthouse.console.access")

TIMEOUT = 10.0
LARGEST = 256 * 1024
KEPT = 3_600.0
"""Seconds for which what the provider says of itself is good."""


class Unavailable(Exception):
    """The provider does not answer, or not as one does."""


class Provider(msgspec.Struct, frozen=True):
    """What is needed of its discovery document. One that signs for machines alone has no place to sign in at."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Discovery:
    """Asks one at a time, and after a failure not for `pause` seconds: what makes it ask may be anybody's. A provider that cannot
    be asked again is believed what it said last; its keys have an age of their own. `signs_in`: people sign in there."""

    def __init__(self, issuer: str, audience: str, clock: Clock, *, signs_in: bool, pause: float = 0.0) -> None:
        self._issuer, self._audience, self._clock = issuer, audience, clock
        self._signs_in, self._pause = signs_in, pause
        self._known: tuple[Provider, Signed] | None = None
        self._asks_again = float("-inf")
        self._failed = ""
        self._asking = asyncio.Lock()

    async def provider(self) -> tuple[Provider, Signed]:
        """Raises Unavailable."""
        async with self._asking:
            if self._clock.monotonic() >= self._asks_again:
                await self._ask()
        if self._known is None:
            raise Unavailable(self._failed)
        return self._known

    async def _ask(self) -> None:
        try:
            provider = await self._said()
        except Unavailable as error:
            self._failed, self._asks_again = str(error), self._clock.monotonic() + self._pause
            if self._known is not None:
                log.warning("what %s said of itself last is believed on: %s", self._issuer, error)
            return
        self._asks_again = self._clock.monotonic() + KEPT
        if self._known is None or self._known[0] != provider:
            keys = KeySet(provider.jwks_uri, self._clock, ALGORITHMS)
            self._known = provider, Signed(keys, provider.issuer, self._audience, self._clock)

    async def _said(self) -> Provider:
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        status, body = await fetch("GET", url)
        try:
            provider = msgspec.json.decode(body, type=Provider)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"{url} answered {status} without a discovery document") from error
        if provider.issuer != self._issuer:
            raise Unavailable(f"{url} speaks for another issuer: write --oidc-issuer as the document does")
        ends = (provider.authorization_endpoint, provider.token_endpoint) if self._signs_in else ()
        if not all(map(is_safe, (provider.jwks_uri, *ends))):
            raise Unavailable(f"{url} leaves addresses out, or names some without https")
        return provider


async def fetch(
    method: str, url: str, form: Mapping[str, str] | None = None, auth: httpx.BasicAuth | None = None
) -> tuple[int, bytes]:
    """Status and body, within bounds of time and size; nobody is followed elsewhere."""
    body = b""
    try:
        async with (
            httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=False) as client,
            client.stream(
                method, url, data=form, auth=auth or httpx.USE_CLIENT_DEFAULT, headers={"accept": "application/json"}
            ) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > LARGEST:
                    raise Unavailable(f"{url} answered with more than {LARGEST:,} bytes")
            return answer.status_code, body
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"{url} does not answer: {type(error).__name__}") from error

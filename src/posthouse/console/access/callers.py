"""Callers: who sends a request that carries its own proof, as a proxy or an issuer signed it. Nobody signs in, nothing is kept."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import Scope

from posthouse.clock import Clock, SystemClock
from posthouse.console.access.access import Oidc, Proxy
from posthouse.console.access.discovery import Discovery, Unavailable
from posthouse.console.access.roles import RolesFile, name_of
from posthouse.console.access.sessions import Claims
from posthouse.console.access.signed import ALGORITHMS, Signed
from posthouse.console.access.who import Who
from posthouse.console.asking import Refusal
from posthouse.edges.keys import PAUSE, KeySet, KeysUnavailable
from posthouse.edges.oidc import Refused

log = logging.getLogger("posthouse.console.access")


class Assertions:
    """What a proxy signs in a header of each request."""

    def __init__(self, proxy: Proxy, clock: Clock) -> None:
        self._header = proxy.header
        self._signed = Signed(KeySet(proxy.keys, clock, ALGORITHMS), proxy.issuer, proxy.audience, clock)

    async def claims(self, headers: Headers) -> Claims:
        """Raises Refusal."""
        said = headers.getlist(self._header)
        if len(said) != 1:
            raise Refusal(401, "The proxy did not say who you are.", "Ask through its proxy.")
        try:
            return await self._signed.claims(said[0])
        except Refused as error:
            log.warning("an assertion was refused: %s", error)
            raise Refusal(401, "The proxy's word for who you are was not accepted.", "The log says why.") from None
        except KeysUnavailable:
            raise Refusal(503, "The keys of the proxy cannot be had now.", "Try again in half a minute.") from None


class BearerTokens:
    """What an issuer signs for a client, as it sends it: `Authorization: Bearer …`. The client's id is the audience."""

    def __init__(self, oidc: Oidc, clock: Clock) -> None:
        self._discovery = Discovery(oidc.issuer, oidc.client_id, clock, signs_in=False, pause=PAUSE)

    async def claims(self, token: str) -> Claims:
        """Raises Refusal."""
        try:
            _, signed = await self._discovery.provider()
            return await signed.claims(token)
        except Refused as error:
            log.warning("a bearer token was refused: %s", error)
            raise Refusal(401, "The bearer token was not accepted.", "The log says why.") from None
        except (Unavailable, KeysUnavailable) as error:
            log.warning("a bearer token cannot be judged: %s", error)
            raise Refusal(503, "The keys of the issuer cannot be had now.", "Try again in half a minute.") from None


class Callers:
    """Knows by a bearer token where an `issuer` is given and one is sent; else by what a `proxy` signed. `roles` is a file of rules."""

    def __init__(
        self, *, roles: Path, proxy: Proxy | None = None, issuer: Oidc | None = None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._rules = RolesFile(roles, sign_ins=False)
        self._assertions = Assertions(proxy, self._clock) if proxy else None
        self._tokens = BearerTokens(issuer, self._clock) if issuer else None

    async def who(self, scope: Scope) -> Who | None:
        """None for nobody. Raises Refusal, also for somebody who is known and may nothing."""
        claims = await self._claims(Headers(scope=scope))
        if claims is None:
            return None
        now = self._clock.now()
        who = self._rules.who(claims, now, now)
        if who is None:
            raise no_role(claims)
        return who

    async def _claims(self, headers: Headers) -> Claims | None:
        said = headers.getlist("authorization")
        scheme, _, token = said[0].strip().partition(" ") if len(said) == 1 else ("", "", "")
        if self._tokens and scheme.lower() == "bearer":
            return await self._tokens.claims(token.strip())
        return await self._assertions.claims(headers) if self._assertions else None


def no_role(claims: Claims) -> Refusal:
    name = name_of(claims) or "somebody without a name"
    return Refusal(403, f"You are {name}, and no rule gives you a role here.", "Ask whoever keeps the file of roles.")

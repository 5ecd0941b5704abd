"""Who asks a registry, as the console's door knows them: by a bearer token of an issuer, or by what a proxy signed."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.types import Scope

from posthouse.console.access import Oidc, Proxy, Who
from posthouse.console.access.callers import Callers
from posthouse.console.asking import Refusal
from posthouse.governance.registry import refusal
from posthouse.governance.registry.door import Guest, Known
from posthouse.governance.registry.users import Role

log = logging.getLogger("posthouse.governance.registry")


def knowing(roles: Path, *, issuer: tuple[str, str] | None, proxy: tuple[str, str, str, str] | None) -> Known:
    """`issuer` is one and the audience; `proxy` are its keys, its issuer, its audience and the header. Raises ConfigurationError."""
    callers = Callers(
        roles=roles,
        issuer=Oidc(issuer=issuer[0], client_id=issuer[1]) if issuer else None,
        proxy=Proxy(keys=proxy[0], issuer=proxy[1], audience=proxy[2], header=proxy[3]) if proxy else None,
    )

    async def known(scope: Scope) -> Guest | None:
        try:
            who = await callers.who(scope)
        except Refusal as error:
            if error.status == 403:
                log.warning("registry refused: %s", error.message)
            raise refusal.not_believed(error.status, f"{error.message} {error.hint}") from None
        return Guest(who.name, role_of(who)) if who else None

    return known


def role_of(who: Who) -> Role:
    """Schemas are everybody's: who is limited to some tenants looks, whatever their roles are."""
    if who.tenants is not None:
        return Role.READ
    return Role.ADMIN if who.may("admin") else Role.WRITE if who.may("operator") else Role.READ

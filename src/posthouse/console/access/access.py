"""Access: how the console knows who looks. One value says all of it, and refuses what would leave the door open."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from starlette.types import Scope

from posthouse.console.access.roles import RoleFunction, RolesFile
from posthouse.console.access.sessions import Claims
from posthouse.console.access.who import Who
from posthouse.errors import ConfigurationError
from posthouse.options import Count, Options, SomeSeconds

Way = Literal["token", "oidc", "proxy", "application"]

WhoFunction = Callable[[Scope], Who | Awaitable[Who | None] | None]
"""From the ASGI scope of a request to who asks, None for nobody. Called for every request."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
"""Names that no stranger's DNS can make a browser send."""


class Oidc(Options):
    """Sign-in at a provider of OpenID Connect, by the code flow with PKCE. The provider sends people back to
    `<url>/signin/callback`: register that. `client_secret` is for providers that give one."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ("openid", "email", "profile")

    def conflicts(self) -> list[str]:
        problems = [] if is_safe(self.issuer) else [f"Oidc(issuer={self.issuer!r}): an issuer is an https:// address"]
        if not self.client_id:
            problems.append("Oidc(client_id=''): say the id that the provider gave to this console")
        if "openid" not in self.scopes:
            problems.append("Oidc(scopes=…): without 'openid' the provider does not say who signs in")
        return problems


class Proxy(Options):
    """A proxy in front signs who asks, in a header of each request: `keys` is the address of its JSON Web Key Set."""

    keys: str
    issuer: str
    audience: str
    header: str = "x-assertion"

    def conflicts(self) -> list[str]:
        problems = [
            f"Proxy({name}=''): say it, or anybody's assertion would do"
            for name in ("issuer", "audience")
            if not getattr(self, name)
        ]
        if not is_safe(self.keys):
            problems.append(f"Proxy(keys={self.keys!r}): keys come by https only, or from a loopback address in tests")
        if not self.header or not self.header.isascii() or any(c in self.header for c in " :,\r\n"):
            problems.append(
                f"Proxy(header={self.header!r}): it is the name of a header, as in 'Cf-Access-Jwt-Assertion'"
            )
        return problems


class Access(Options):
    """At most one of `oidc`, `proxy` and `who`; without any, a one-time token that the console prints.

    `roles` says what the claims of a person let them do: a TOML file of rules or a function. `url` is the address that people
    type, `host_names` are further ones that may stand in `Host`. `idle` and `longest` end a session, in seconds.
    """

    oidc: Oidc | None = None
    proxy: Proxy | None = None
    who: WhoFunction | None = None
    roles: Path | RoleFunction | None = None
    url: str = ""
    host_names: tuple[str, ...] = ()
    idle: SomeSeconds = 3_600.0
    longest: SomeSeconds = 43_200.0
    most_sessions: Count = 1_000

    @property
    def way(self) -> Way:
        return "oidc" if self.oidc else "proxy" if self.proxy else "application" if self.who else "token"

    @property
    def names(self) -> frozenset[str] | None:
        """What may stand in Host, in lower case; None for anything: the application in which this is mounted knows better."""
        said = {name.lower() for name in self.host_names} | ({urlsplit(self.url).netloc.lower()} if self.url else set())
        return None if self.who and not said else LOOPBACK | said

    def conflicts(self) -> list[str]:
        problems = []
        if sum(way is not None for way in (self.oidc, self.proxy, self.who)) > 1:
            problems.append("Access: oidc, proxy and who are three ways to know who asks: say one")
        if (self.oidc or self.proxy) and self.roles is None:
            problems.append(
                "Access: nothing says who may do what: roles=Path('roles.toml'), or a function of the claims"
            )
        if not (self.oidc or self.proxy) and self.roles is not None:
            problems.append("Access: roles are for the claims of oidc or proxy, and neither is there")
        if self.url and not is_safe(self.url):
            problems.append(f"Access(url={self.url!r}): it begins with https://, or sessions could be read on the way")
        if self.url and (urlsplit(self.url).query or urlsplit(self.url).fragment):
            problems.append(f"Access(url={self.url!r}): it ends with its path")
        problems += [
            f"Access(host_names={name!r}): it is a name, as in 'console.example' or 'console.example:8443'"
            for name in self.host_names
            if not name or set(name) & set("/@?# *")
        ]
        return problems

    def bound_to(self, host: str) -> None:
        """ConfigurationError where a console at this address would be open to strangers, or nobody could reach it."""
        if is_loopback(host):
            return
        if self.way == "token":
            raise ConfigurationError(
                f"a console on {host} would be open to whoever reaches that address: give --oidc-issuer or --proxy-keys, so that"
                " it knows who asks; or leave it on 127.0.0.1 and reach it by `ssh -L 8470:127.0.0.1:8470`"
            )
        if self.names is not None and not self.names - LOOPBACK:
            raise ConfigurationError(
                f"a console on {host} needs the address that people type, or it refuses all of them: --url https://console.example"
            )
        if self.way == "oidc" and not self.url:
            raise ConfigurationError(
                f"a console on {host} needs the address at which the provider sends people back: --url https://console.example"
            )

    def rights(self) -> Callable[[Claims, float, float], Who | None]:
        """From claims, the moment of the sign-in and now to who that is."""
        if isinstance(self.roles, Path):
            return RolesFile(self.roles, sign_ins=self.proxy is None).who
        chosen = self.roles
        return (lambda claims, began, now: chosen(claims)) if chosen else (lambda claims, began, now: None)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_safe(url: str) -> bool:
    """https, or http on the loopback: nobody listens on the way."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # it raises for a port that there cannot be
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None or not url.isprintable() or "\\" in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))

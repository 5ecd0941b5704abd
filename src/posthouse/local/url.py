"""URLs of stores and brokers, split with care: a password that was not escaped turns into a port, a path or an option, and would
be shown in the error that says so."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from posthouse.errors import ConfigurationError

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(?::\d*)?")

ESCAPE = (
    "a `/`, `?`, `#`, `@`, `:`, `[` or blank in a user or a password is written as %2F, %3F, %23, %40, %3A, %5B or %20"
)


_WITH_DRIVER = ("postgresql", "sqlite")
"""Schemes behind which SQLAlchemy names a driver, as in `postgresql+asyncpg:`; ours is our own."""


def split(url: str) -> SplitResult:
    """The parts of a URL; one of SQLAlchemy's without its driver, one of PostgreSQL with its database as the path. Raises
    ConfigurationError, without a word of the URL but its scheme, where its servers cannot be told from its user and password, or
    drivers would not find the same place."""
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"the {scheme} URL cannot be read: {ESCAPE}") from None
    user, _, servers = parts.netloc.rpartition("@")
    if parts.netloc and any(_SERVER.fullmatch(server) is None for server in servers.split(",")):
        raise ConfigurationError(f"the {scheme} URL names a port that is no number, or no server at all: {ESCAPE}")
    spilt = parts.fragment or "@" in parts.path or "@" in parts.query.partition("=")[0]
    if parts.netloc and (spilt or "@" in user):
        raise ConfigurationError(f"the {scheme} URL has a part behind its servers that looks like a password: {ESCAPE}")
    scheme, driver, _ = parts.scheme.partition("+")
    parts = parts._replace(scheme=scheme) if driver and scheme in _WITH_DRIVER else parts
    return _one_place(parts) if parts.scheme in ("postgresql", "postgres") else parts


def joined(parts: SplitResult) -> str:
    """The URL of the parts, with the slashes that libpq asks for where no server is named."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"


def _one_place(parts: SplitResult) -> SplitResult:
    """What stands behind the `?` counts for libpq, what stands before it for asyncpg: so nothing may stand in both, and the
    database, which SQLAlchemy looks for in the path, is in the path."""
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    who, _, server = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    before = {"dbname": parts.path.strip("/"), "host": server, "port": server, "user": user, "password": password}
    twice = [name for name, found in before.items() if found and name in said]
    if twice:
        raise ConfigurationError(
            f"the {parts.scheme} URL names its {twice[0]} behind the `?` and also before it, where "
            "drivers differ in which one counts: leave one out"
        )
    if "hostaddr" in said:
        raise ConfigurationError(f"the {parts.scheme} URL has hostaddr, which not every driver heeds: use host")
    if "dbname" not in said:
        return parts
    database = quote(said.pop("dbname"), safe="")
    return parts._replace(path=f"/{database}", query=urlencode(said))

"""URLs of stores and brokers, split with care: a password that was not escaped turns into a port, a path or an option, and would
be shown in the error that says so."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from posthouse.errors import ConfigurationError

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(?::\d*)?")

ESCAPE = (
    "a `/`, `?`, `#`, `@`, `:`, `[` or blank in a user or a password is written as %2F, %3F, %23, %40, %3A, %5B or %20"
)


_WITH_DRIVER = ("postgresql", "sqlite")
"""Schemes behind which SQLAlchemy names a driver, as in `postgresql+asyncpg:`; ours is our own."""


def split(url: str) -> SplitResult:
    """The parts of a URL; one of SQLAlchemy's without its driver. Raises ConfigurationError, without a word of the URL but its scheme, where its servers cannot be told
    from its user and password."""
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
    return parts._replace(scheme=scheme) if driver and scheme in _WITH_DRIVER else parts

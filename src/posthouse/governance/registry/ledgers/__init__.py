"""Where a registry keeps its schemas: a URL names the ledger, `open_ledger` makes it."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.registry.ledger import Ledger
from posthouse.governance.registry.ledgers.sqlite import SqliteLedger
from posthouse.local.url import split

__all__ = ["open_ledger"]

SCHEMES = ("sqlite", "postgresql")


def open_ledger(url: str) -> Ledger:
    """The ledger that the URL names; `open` connects it.

    `sqlite:///registry.db` is relative to the working directory, `sqlite:////var/lib/registry.db` is absolute, `sqlite://`
    is in memory. `postgresql://user@host/shop` is a database, in which the schema `posthouse_registry` is used.
    """
    parts = split(url)
    if parts.scheme == "sqlite":
        return _sqlite(parts)
    if parts.scheme in ("postgresql", "postgres"):
        return _postgres(url)
    raise ConfigurationError(
        f"a registry cannot be kept in {url!r}: no store is called {parts.scheme!r}.{did_you_mean(parts.scheme, SCHEMES)}"
    )


def _sqlite(parts: SplitResult) -> Ledger:
    if parts.netloc or parts.query:
        raise ConfigurationError(
            f"{parts.geturl()!r} is not the URL of a registry's file: write sqlite:///registry.db (relative) or "
            "sqlite:////var/lib/registry.db, with nothing behind it"
        )
    return SqliteLedger(unquote(parts.path.removeprefix("/")) or ":memory:")


def _postgres(url: str) -> Ledger:
    try:
        from posthouse.governance.registry.ledgers.postgres import PostgresLedger
    except ImportError as error:
        raise ConfigurationError("PostgreSQL needs asyncpg: pip install 'posthouse[postgres]'") from error
    return PostgresLedger(url)

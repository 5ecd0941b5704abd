"""Where the store is: a URL names the database, `open_store` makes it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.sqlite import Synchronous
from posthouse.store import Store
from posthouse.stores.sqlite import SqliteStore

__all__ = ["open_store"]

SCHEMES = ("sqlite",)


class SqliteOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a SQLite URL; each is a parameter of SqliteStore."""

    synchronous: Synchronous = "FULL"
    lanes: Annotated[int, msgspec.Meta(ge=1, le=62)] | None = None
    idempotency_window: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    patience: Annotated[float, msgspec.Meta(gt=0)] = 30.0


def open_store(url: str, *, clock: Clock) -> Store:
    """The store that the URL names; it connects when it is first used.

    `sqlite:///shop.db` is relative to the working directory, `sqlite:////var/lib/shop.db` is absolute, `sqlite://` is
    in memory, and `?synchronous=NORMAL&lanes=16` sets options of SqliteStore. Raises ConfigurationError with every
    problem of the URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return _sqlite(parts, clock)
    raise ConfigurationError(f"no store is called {parts.scheme!r} in {url!r}.{did_you_mean(parts.scheme, SCHEMES)}")


def _sqlite(parts: SplitResult, clock: Clock) -> SqliteStore:
    problems = []
    if parts.netloc:
        problems.append(
            f"{parts.geturl()!r} names a host: write sqlite:///shop.db (relative) or sqlite:////var/lib/shop.db"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = SqliteOptions.__struct_fields__
    problems += [
        f"the SQLite store has no option {name!r}.{did_you_mean(name, known)}" for name in given if name not in known
    ]
    options = SqliteOptions()
    try:
        options = msgspec.convert(given, SqliteOptions, strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"an option of {parts.geturl()!r} does not fit: {error}")
    if problems:
        raise ConfigurationError(*problems)
    return SqliteStore(
        unquote(parts.path.removeprefix("/")) or ":memory:",
        clock=clock,
        synchronous=options.synchronous,
        lanes=options.lanes,
        idempotency_window=options.idempotency_window,
        patience=options.patience,
    )

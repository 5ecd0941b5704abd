"""What a `sqlite:` URL may say."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, unquote

import msgspec

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.sqlite import Synchronous
from posthouse.stores.options import options_of
from posthouse.stores.sqlite.store import SqliteStore


class SqliteOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a SQLite URL; each is a parameter of SqliteStore."""

    synchronous: Synchronous = "FULL"
    shards: Annotated[int, msgspec.Meta(ge=1, le=62)] | None = None
    idempotency_window: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    patience: Annotated[float, msgspec.Meta(gt=0)] = 30.0


def from_url(parts: SplitResult, clock: Clock) -> SqliteStore:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    if parts.netloc:
        problems.append(
            f"{parts.geturl()!r} names a host: write sqlite:///shop.db (relative) or sqlite:////var/lib/shop.db"
        )
    options = options_of(parts, SqliteOptions, "SQLite", problems)
    if problems:
        raise ConfigurationError(*problems)
    return SqliteStore(
        unquote(parts.path.removeprefix("/")) or ":memory:",
        clock=clock,
        synchronous=options.synchronous,
        shards=options.shards,
        idempotency_window=options.idempotency_window,
        patience=options.patience,
    )

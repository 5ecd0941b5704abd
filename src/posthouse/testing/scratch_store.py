"""ScratchStore: the PostgreSQL store on a scratch database. Nobody else is there, so that it need not look for others: tests open one
each, and what a running service does once in a day would be most of a test's time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from urllib.parse import urlsplit

from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.postgres.connection import ServerConnection
from posthouse.local.postgres.notifier import Notifier
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.database import LAST_PAUSE, Database, notifier_name
from posthouse.stores.postgres.schema import Place
from posthouse.testing.scratch import refuse_others

_known: dict[tuple[str, str], Place] = {}
"""By URL and schema: databases that were looked at, and found to be made for tests, with tables that fit."""


async def open_scratch(url: str, clock: Clock) -> PostgresStore:
    """The store that a URL names, in a database that was made for tests; ConfigurationError for any other."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(
            f"a harness runs in memory or on PostgreSQL: give it the fixture posthouse_store, not {url!r}"
        )
    store = open_store(url, clock=clock)
    assert isinstance(store, PostgresStore)
    database = store._database
    place = database.url, database.settings.schema
    if place not in _known:
        await refuse_others(url)
        _known[place] = await database.check()
    else:
        database.place = database.joined = _known[place]
    _be_alone(database)
    store.checks = _no_checks  # type: ignore[method-assign]
    store.pending_migrations = _none_pending  # type: ignore[method-assign]
    return store


def _be_alone(database: Database) -> None:
    """Statements of our own share one connection, and nobody listens for other machines."""
    one_at_a_time = asyncio.Lock()
    connected = database.connected

    @contextlib.asynccontextmanager
    async def in_turn() -> AsyncIterator[ServerConnection]:
        async with one_at_a_time, connected() as connection:
            yield connection

    database.connected = in_turn  # type: ignore[method-assign]
    database.notifier = Notifier(
        notifier_name(database.url, database.settings.schema),
        "posthouse tests",
        listen_url=None,
        run=partial(database.run, check=False),
        floor=LAST_PAUSE,
    )


async def _no_checks(*, today: bool = True) -> Sequence[Check]:
    return ()


async def _none_pending(*, post: bool = False) -> Sequence[str]:
    return ()

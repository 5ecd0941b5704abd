"""ScratchStore: the PostgreSQL store on a scratch database. Nobody else is there, so that it need not look for others: tests open one
each, and what a running service does once in a day would be most of a test's time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.postgres.connection import ServerConnection
from posthouse.local.postgres.notifier import Notifier
from posthouse.store import Rows
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.database import LAST_PAUSE, Database, notifier_name
from posthouse.stores.postgres.errors import mapped
from posthouse.stores.postgres.schema import Place
from posthouse.testing.scratch import ScratchDatabase, at_hand, refuse_others

_asked: dict[tuple[object, ...], Any] = {}
"""By URL and numbers: types of the server."""
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
    scratch = at_hand.get(database.url)
    if scratch is not None:
        _ask(database, scratch)
    store.checks = _no_checks  # type: ignore[method-assign]
    store.pending_migrations = _none_pending  # type: ignore[method-assign]
    return store


def _be_alone(database: Database) -> None:
    """Statements of our own share one connection, which is not given up when somebody no longer waits for one; types of the server
    are asked for once; nobody tells other machines anything, or listens to them."""
    one_at_a_time = asyncio.Lock()
    acquire, connected, run = database.acquire, database.connected, database.run

    @contextlib.asynccontextmanager
    async def in_turn() -> AsyncIterator[ServerConnection]:
        async with one_at_a_time, connected() as connection:
            yield connection

    async def run_to_its_end(sql: str, *parameters: object, check: bool = True) -> Rows:
        return await asyncio.shield(asyncio.ensure_future(run(sql, *parameters, check=check)))

    async def acquire_knowing() -> ServerConnection:
        connection = await acquire()
        if "_introspect_types" not in vars(connection):
            asked: Any = getattr(connection, "_introspect_types")  # noqa: B009 - the driver's own
            vars(connection)["_introspect_types"] = partial(_types, database.url, asked)
        return connection

    database.acquire = acquire_knowing  # type: ignore[method-assign]
    database.connected = in_turn  # type: ignore[method-assign]
    database.run = run_to_its_end  # type: ignore[method-assign]
    database.notifier = _InProcess(
        notifier_name(database.url, database.settings.schema),
        "posthouse tests",
        listen_url=None,
        run=partial(database.run, check=False),
        floor=LAST_PAUSE,
    )


def _ask(database: Database, scratch: ScratchDatabase) -> None:
    """Statements of our own are run on the connection of the session."""

    async def run(sql: str, *parameters: object, check: bool = True) -> Rows:
        with mapped("using the database"):
            rows: Rows = await scratch.ask(database.text(sql), parameters, as_rows=True)
            return rows

    async def fetch(sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
        with mapped("using the database"):
            found: Sequence[Sequence[Any]] = await scratch.ask(database.text(sql), parameters, as_rows=False)
            return found

    database.run = run  # type: ignore[method-assign]
    database.fetch = fetch  # type: ignore[method-assign]


class _InProcess(Notifier):
    """Reaches this process only."""

    def notify(self) -> None:
        self.wake()


async def _types(url: str, asked: Any, oids: Collection[int], timeout: float | None) -> Any:
    """What asyncpg asks each new connection for, which takes longer than most tests."""
    wanted = (url, *sorted(oids))
    if wanted not in _asked:
        _asked[wanted] = await asked(oids, timeout)
    return _asked[wanted]


async def _no_checks(*, today: bool = True, shapes: Collection[type] = ()) -> Sequence[Check]:
    return ()


async def _none_pending(*, post: bool = False) -> Sequence[str]:
    return ()

"""Events added to transactions that other libraries began."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import aiosqlite
import pytest
import pytest_asyncio
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, StoreError, StoreOutdated, StoreUnavailable
from posthouse.store import OutboxRow
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.steps import append_now

INSERT = "INSERT INTO orders (name) VALUES ('o1')"


def row(number: int = 1, **changes: Any) -> OutboxRow:
    return OutboxRow(topic="orders", tenant="t1", event_id=f"e{number}", body=b"{}", key="k", **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest_asyncio.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=SystemClock(), synchronous="NORMAL", patience=2)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE orders (name TEXT)")
    yield store
    await store.aclose()


class Theirs(Protocol):
    """The user's side of a join."""

    connection: Any

    async def insert(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...


class Plain:
    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)

    async def insert(self) -> None:
        self.connection.execute(INSERT)

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


class Sqlalchemy:
    """A Session, or with `bare` a Connection."""

    def __init__(self, path: Path, *, bare: bool = False) -> None:
        self.engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
        self.connection: Any = self.engine.connect() if bare else Session(self.engine)

    async def insert(self) -> None:
        self.connection.execute(text(INSERT))

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class Asynchronous:
    """An aiosqlite connection, an AsyncSession or an AsyncConnection."""

    def __init__(self, connection: Any, engine: Any = None) -> None:
        self.connection = connection
        self.engine = engine

    async def insert(self) -> None:
        await self.connection.execute(INSERT if self.engine is None else text(INSERT))

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()
        if self.engine is not None:
            await self.engine.dispose()


async def open_kind(kind: str, path: Path) -> Theirs:
    if kind == "sqlite3":
        return Plain(path)
    if kind == "aiosqlite":
        return Asynchronous(await aiosqlite.connect(path))
    if kind in ("Session", "Connection"):
        return Sqlalchemy(path, bare=kind == "Connection")
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
    connection = AsyncSession(engine) if kind == "AsyncSession" else await AsyncConnection(engine).start()
    return Asynchronous(connection, engine)


@pytest_asyncio.fixture(params=["sqlite3", "aiosqlite", "Session", "Connection", "AsyncSession", "AsyncConnection"])
async def theirs(request: pytest.FixtureRequest, store: SqliteStore, path: Path) -> AsyncIterator[Theirs]:
    theirs = await open_kind(request.param, path)
    yield theirs
    await theirs.close()


async def committed(store: SqliteStore) -> tuple[int, list[tuple[str, int | None]]]:
    """How many business rows there are, and the events beside them."""
    async with store.begin() as tx:
        orders = int(str((await tx.execute("SELECT count(*) FROM orders")).scalar()))
        events = await tx.execute("SELECT event_id, sequence FROM posthouse_outbox ORDER BY id")
    return orders, [(str(name), number if number is None else int(str(number))) for name, number in events]


async def test_row_and_event_commit_together(store: SqliteStore, theirs: Theirs) -> None:
    shards = await store.outbox.lease("relay", 10)
    await theirs.insert()
    assert await store.outbox.append(store.join(theirs.connection), [row(1), row(2)]) == ["e1", "e2"]
    assert list((await store.outbox.poll(shards, 10)).rows) == []
    await theirs.commit()
    assert await committed(store) == (1, [("e1", 1), ("e2", 2)])
    assert [found.event_id for found in (await store.outbox.poll(shards, 10)).rows] == ["e1", "e2"]


async def test_row_and_event_roll_back_together_and_leave_no_gap(store: SqliteStore, theirs: Theirs) -> None:
    await theirs.insert()
    await store.outbox.append(store.join(theirs.connection), [row(1)])
    await theirs.rollback()
    assert await committed(store) == (0, [])
    await store.outbox.append(store.join(theirs.connection), [row(2)])
    await theirs.insert()
    await theirs.commit()
    assert await committed(store) == (1, [("e2", 1)])


async def test_an_intent_added_twice_is_one_event(store: SqliteStore, theirs: Theirs) -> None:
    for number in (1, 2):
        added = await store.outbox.append(store.join(theirs.connection), [row(number, idempotency_key="i")])
        await theirs.commit()
        assert added == ["e1"]
    assert await committed(store) == (0, [("e1", 1)])


async def test_a_joined_transaction_executes(store: SqliteStore, theirs: Theirs) -> None:
    tx = store.join(theirs.connection)
    assert (await tx.execute(INSERT)).rowcount == 1
    assert await tx.execute("SELECT name FROM orders WHERE name = ?", ("o1",)) == [("o1",)]
    assert tx.connection is theirs.connection
    await theirs.rollback()
    assert await committed(store) == (0, [])


async def test_a_joined_transaction_takes_names_and_a_mapping(store: SqliteStore, theirs: Theirs) -> None:
    tx = store.join(theirs.connection)
    await tx.execute("INSERT INTO orders (name) VALUES (:name) -- :x", {"name": "a:b"})
    assert await tx.execute("SELECT name FROM orders WHERE name IN (:n, :m, :n)", {"m": 1, "n": "a:b"}) == [("a:b",)]
    with pytest.raises(StoreError, match=":n has no value"):
        await tx.execute("SELECT :n", {"name": 1})
    await theirs.rollback()


async def test_a_relay_notices_what_a_joined_transaction_committed(store: SqliteStore, theirs: Theirs) -> None:
    seen = await store.changed(-1, 0)
    waiting = asyncio.create_task(store.changed(seen, 30))
    await asyncio.sleep(0)
    await store.outbox.append(store.join(theirs.connection), [row(1)])
    await theirs.commit()
    assert await asyncio.wait_for(waiting, 5) > seen


async def test_another_database_is_refused(store: SqliteStore, theirs: Theirs, tmp_path: Path) -> None:
    elsewhere = SqliteStore(tmp_path / "elsewhere.db", clock=SystemClock())
    await elsewhere.upgrade()
    with pytest.raises(ConfigurationError, match=r"elsewhere\.db"):
        await elsewhere.outbox.append(elsewhere.join(theirs.connection), [row(1)])
    await elsewhere.aclose()


@pytest.mark.parametrize("kind", ["sqlite3", "aiosqlite", "Session", "AsyncSession"])
async def test_a_database_without_tables_says_what_to_run(kind: str, path: Path) -> None:
    bare = SqliteStore(path, clock=SystemClock())
    theirs = await open_kind(kind, path)
    with pytest.raises(StoreOutdated, match="posthouse db upgrade"):
        await bare.outbox.append(bare.join(theirs.connection), [row(1)])
    await theirs.close()
    await bare.aclose()


async def test_a_writer_in_the_way_is_store_unavailable(store: SqliteStore, path: Path) -> None:
    for kind in ("sqlite3", "Session"):
        theirs = await open_kind(kind, path)
        if kind == "sqlite3":
            theirs.connection.execute("PRAGMA busy_timeout=0")
        else:
            theirs.connection.execute(text("PRAGMA busy_timeout=0"))
        async with store.begin() as tx:
            await tx.execute(INSERT)
            with pytest.raises(StoreUnavailable):
                await store.outbox.append(store.join(theirs.connection), [row(1)])
        await theirs.rollback()
        await theirs.close()


async def test_what_our_statement_ends_with_shows_nothing_of_the_event(store: SqliteStore, theirs: Theirs) -> None:
    async with store.begin() as tx:
        await tx.execute(
            "CREATE TRIGGER no BEFORE INSERT ON posthouse_outbox BEGIN SELECT RAISE(ABORT, 'not now'); END"
        )
    personal = row(headers={"name": "+49 170 5550002"}, idempotency_key="5550002")
    with pytest.raises(StoreError, match="not now") as failed:
        await store.outbox.append(store.join(theirs.connection), [personal])
    assert "5550002" not in "".join(traceback.format_exception(failed.value))
    await theirs.rollback()


async def test_a_stale_snapshot_is_explained(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM orders").fetchall()
        async with store.begin() as tx:
            await tx.execute(INSERT)
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            await store.outbox.append(store.join(connection), [row(1)])


# Synchronous code has no event loop.


@pytest.fixture
def prepared(path: Path) -> Iterator[SqliteStore]:
    """A store whose own connections were never opened here."""

    async def upgrade() -> None:
        store = SqliteStore(path, clock=SystemClock())
        await store.upgrade()
        async with store.begin() as tx:
            await tx.execute("CREATE TABLE orders (name TEXT)")
        await store.aclose()

    asyncio.run(upgrade())
    store = SqliteStore(path, clock=SystemClock())
    yield store
    asyncio.run(store.aclose())


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT event_id, sequence FROM posthouse_outbox ORDER BY id").fetchall()


def test_a_plain_connection_adds_without_an_event_loop(prepared: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        with connection:
            connection.execute(INSERT)
            assert append_now(prepared, connection, [row(1)]) == ["e1"]
        with connection:
            append_now(prepared, connection, [row(2)])
            connection.rollback()
            append_now(prepared, connection, [row(3)])
        assert not connection.in_transaction
    assert rows_of(path) == [("e1", 1), ("e3", 2)]


def test_a_plain_connection_in_autocommit_mode_is_refused(prepared: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
            append_now(prepared, connection, [row(1)])
        connection.execute("BEGIN IMMEDIATE")
        append_now(prepared, connection, [row(2)])
        connection.execute("COMMIT")
    assert rows_of(path) == [("e2", 1)]


def test_a_session_adds_without_an_event_loop(prepared: SqliteStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with Session(engine) as session, session.begin():
        session.execute(text(INSERT))
        append_now(prepared, session, [row(1)])
    with Session(engine) as session:
        append_now(prepared, session, [row(2)])
        session.rollback()
        append_now(prepared, session, [row(3)])
        session.commit()
    engine.dispose()
    assert rows_of(path) == [("e1", 1), ("e3", 2)]


def test_a_scoped_session_is_the_session_behind_it(prepared: SqliteStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    registry = scoped_session(sessionmaker(engine))
    append_now(prepared, registry, [row(1)])
    registry.commit()
    registry.remove()
    engine.dispose()
    assert rows_of(path) == [("e1", 1)]


def test_a_session_in_autocommit_mode_is_refused(prepared: SqliteStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(ConfigurationError, match="autocommit"):
        append_now(prepared, session, [row(1)])
    engine.dispose()
    assert rows_of(path) == []


def with_real_transactions(engine: Engine) -> Engine:
    """SQLAlchemy's own recipe for SQLite: it emits BEGIN itself, so that savepoints work."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def test_a_savepoint_takes_its_event_with_it(prepared: SqliteStore, path: Path) -> None:
    engine = with_real_transactions(create_engine(f"sqlite:///{path}"))
    with Session(engine) as session:
        with session.begin_nested() as undone:
            append_now(prepared, session, [row(1)])
            undone.rollback()
        with session.begin_nested():
            append_now(prepared, session, [row(2)])
        session.rollback()
        with session.begin_nested():
            append_now(prepared, session, [row(3)])
        session.commit()
    engine.dispose()
    assert rows_of(path) == [("e3", 1)]


def test_a_savepoint_after_the_first_write_works_with_the_default_engine_too(prepared: SqliteStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with Session(engine) as session:
        session.execute(text(INSERT))
        with session.begin_nested() as undone:
            append_now(prepared, session, [row(1)])
            undone.rollback()
        append_now(prepared, session, [row(2)])
        session.commit()
    engine.dispose()
    assert rows_of(path) == [("e2", 1)]


async def test_an_asynchronous_connection_needs_the_event_loop(store: SqliteStore, path: Path) -> None:
    for kind in ("aiosqlite", "AsyncSession", "AsyncConnection"):
        theirs = await open_kind(kind, path)
        with pytest.raises(ConfigurationError, match="event loop"):
            append_now(store, theirs.connection, [row(1)])
        await theirs.close()


def test_what_cannot_be_joined_is_named_with_what_can(prepared: SqliteStore) -> None:
    with pytest.raises(ConfigurationError, match=r"builtins\.dict.*AsyncSession"):
        prepared.join({})


def test_a_session_on_another_kind_of_database_is_refused(prepared: SqliteStore) -> None:
    class Elsewhere:
        """As much of a PostgreSQL connection as is looked at before anything is sent."""

        __module__ = "sqlalchemy.engine.base"

        class dialect:
            name = "postgresql"

        def exec_driver_sql(self) -> None: ...

    with pytest.raises(ConfigurationError, match="postgresql"):
        append_now(prepared, Elsewhere(), [row(1)])

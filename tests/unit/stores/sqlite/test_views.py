from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from posthouse.errors import ConfigurationError, StoreError, TransactionClosed
from posthouse.store import OutboxRow
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.steps import append_now


class Tables(DeclarativeBase):
    pass


class Mine(Tables):
    __tablename__ = "mine"
    name: Mapped[str] = mapped_column(primary_key=True)


async def names(store: SqliteStore) -> list[object]:
    async with store.begin() as tx:
        return [name for (name,) in await tx.execute("SELECT name FROM mine ORDER BY name")]


async def test_a_plain_handler_gets_a_plain_connection(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, sqlite3.Connection) as connection:
            assert isinstance(connection, sqlite3.Connection)
            connection.row_factory = sqlite3.Row
            connection.executemany("INSERT INTO mine VALUES (?)", [("a",), ("b",)])
            found = connection.execute("SELECT name FROM mine WHERE name = :name", {"name": "b"}).fetchone()
            assert found["name"] == "b"
            assert connection.in_transaction
            assert connection.total_changes >= 2
        assert await tx.execute("SELECT count(*) FROM mine") == [(2,)], "our own rows stay tuples"
    assert await names(store) == ["a", "b"]


async def test_a_plain_handler_runs_in_a_thread(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, sqlite3.Connection) as connection:
            await asyncio.to_thread(connection.execute, "INSERT INTO mine VALUES ('a')")  # type: ignore[attr-defined]
    assert await names(store) == ["a"]


@pytest.mark.parametrize("word", ["commit", "rollback", "close", "__enter__", "executescript"])
async def test_a_plain_handler_cannot_end_the_transaction(store: SqliteStore, word: str) -> None:
    async with store.begin() as tx:
        with store.view(tx, sqlite3.Connection) as connection, pytest.raises(StoreError, match="not yours"):
            getattr(connection, word)(*(["SELECT 1"] if word == "executescript" else []))
        await tx.execute("INSERT INTO mine VALUES ('a')")
    assert await names(store) == ["a"]


async def test_a_session_is_flushed_at_the_end_and_commits_with_the_transaction(store: SqliteStore) -> None:
    for name in ("a", "b"):
        async with store.begin() as tx:
            with store.view(tx, Session) as session:
                assert isinstance(session, Session)
                session.add(Mine(name=name))
            assert (await tx.execute("SELECT count(*) FROM mine WHERE name = ?", (name,))).scalar() == 1
    assert await names(store) == ["a", "b"]


async def test_a_sessions_commit_does_not_commit_ours(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError):
        await commit_session_then_fail(store)
    assert await names(store) == []


async def commit_session_then_fail(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, Session) as session:
            assert isinstance(session, Session)
            session.add(Mine(name="a"))
            session.commit()
            session.add(Mine(name="b"))
        assert (await tx.execute("SELECT count(*) FROM mine")).scalar() == 2
        raise ZeroDivisionError


async def test_a_sessions_rollback_rolls_all_back_and_the_block_says_so(store: SqliteStore) -> None:
    with pytest.raises(TransactionClosed, match="session's rollback"):
        await roll_back_session(store)
    assert await names(store) == []


async def roll_back_session(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO mine VALUES ('before')")
        with store.view(tx, Session) as session:
            assert isinstance(session, Session)
            session.add(Mine(name="a"))
            session.flush()
            session.rollback()
        with pytest.raises(TransactionClosed):
            await tx.execute("INSERT INTO mine VALUES ('after')")


async def test_a_flush_that_fails_says_why(store: SqliteStore) -> None:
    with pytest.raises(IntegrityError, match="UNIQUE"):
        await flush_twice(store)
    assert await names(store) == []


async def flush_twice(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO mine VALUES ('a')")
        with store.view(tx, Session) as session:
            assert isinstance(session, Session)
            session.add(Mine(name="a"))


async def test_a_session_may_use_savepoints(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, Session) as session:
            assert isinstance(session, Session)
            session.add(Mine(name="a"))
            with session.begin_nested() as undone:
                session.add(Mine(name="b"))
                session.flush()
                undone.rollback()
            with session.begin_nested():
                session.add(Mine(name="c"))
    assert await names(store) == ["a", "c"]


async def test_a_handlers_own_error_comes_through_a_session_unchanged(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError):
        await fail_in_session(store)
    assert await names(store) == []


async def fail_in_session(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, Session) as session:
            assert isinstance(session, Session)
            session.add(Mine(name="a"))
            session.flush()
            raise ZeroDivisionError


async def test_a_session_kept_after_the_end_cannot_write(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, Session) as kept:
            assert isinstance(kept, Session)
            connection: Any = kept.connection().connection.driver_connection
    with pytest.raises(TransactionClosed):
        connection.execute("INSERT INTO mine VALUES ('late')")
    assert await names(store) == []


async def test_a_sqlalchemy_connection_is_a_shape_too(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, Connection) as connection:
            assert isinstance(connection, Connection)
            connection.execute(text("INSERT INTO mine VALUES ('a')"))
    assert await names(store) == ["a"]


async def test_events_may_be_added_through_a_view(store: SqliteStore) -> None:
    row = OutboxRow(topic="t", tenant="t1", event_id="e1", body=b"", key="k")
    async with store.begin() as tx:
        with store.view(tx, sqlite3.Connection) as connection:
            await store.outbox.append(store.join(connection), [row])
        with store.view(tx, Session) as session:
            append_now(store, session, [row])
    assert (await store.counts()).committed == {"t": 2}


async def test_a_shape_that_does_not_exist_is_named_with_those_that_do(store: SqliteStore) -> None:
    async with store.begin() as tx:
        for wanted in (AsyncSession, dict):
            with pytest.raises(ConfigurationError, match=r"sqlalchemy\.orm\.Session"), store.view(tx, wanted):
                pass
    with pytest.raises(ConfigurationError, match="yours already"):
        store.view(store.join(sqlite3.connect(":memory:")), sqlite3.Connection)


async def pass_over_and_go_on(store: SqliteStore, wanted: type) -> None:
    async with store.begin() as tx:
        with store.view(tx, wanted) as view:
            run: Any = view
            run.execute(text("INSERT INTO mine VALUES ('a')"))
            with pytest.raises(IntegrityError):
                run.execute(text("INSERT OR ROLLBACK INTO mine VALUES ('a')"))
            run.execute(text("INSERT INTO mine VALUES ('would commit by itself')"))


@pytest.mark.parametrize("wanted", [Session, Connection])
async def test_nothing_commits_by_itself_after_an_error_that_ended_the_transaction(
    store: SqliteStore, wanted: type
) -> None:
    with pytest.raises(StatementError, match="rolled back inside"):
        await pass_over_and_go_on(store, wanted)
    assert await names(store) == []

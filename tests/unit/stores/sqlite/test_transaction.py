from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from posthouse.clock import ManualClock
from posthouse.errors import DeadlineExceeded, StoreError, StoreUnavailable, TransactionClosed
from posthouse.stores.sqlite import SqliteStore
from posthouse.stores.sqlite.database import SqliteTransaction

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def names(store: SqliteStore) -> list[object]:
    async with store.begin() as tx:
        return [name for (name,) in await tx.execute("SELECT name FROM mine ORDER BY name")]


async def abandoned(store: SqliteStore) -> SqliteTransaction:
    """A transaction that ran past its deadline."""
    try:
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine VALUES ('lost')")
            raise DeadlineExceeded("too slow")
    except DeadlineExceeded:
        return tx


async def test_a_transaction_inside_a_transaction_is_refused_instead_of_waiting_for_itself(store: SqliteStore) -> None:
    async with store.begin():
        with pytest.raises(StoreError, match="open in this task already"):
            async with store.begin():
                pass
        with pytest.raises(StoreError, match="open in this task already"):
            await store.outbox.lease("relay", 10)
    assert await names(store) == []


async def test_a_task_started_inside_a_transaction_waits_for_its_end(store: SqliteStore) -> None:
    async with store.begin() as tx:
        child = asyncio.create_task(names(store))
        await asyncio.sleep(0)
        await tx.execute("INSERT INTO mine VALUES ('a')")
    assert await child == ["a"]


async def test_waiting_inside_a_transaction_for_a_task_that_begins_one_ends(store: SqliteStore) -> None:
    async with store.begin():
        with pytest.raises(StoreUnavailable, match="one writer"):
            await asyncio.create_task(names(store))


async def test_transactions_of_two_stores_may_nest(store: SqliteStore, tmp_path: Path, clock: ManualClock) -> None:
    other = SqliteStore(tmp_path / "other.db", clock=clock)
    await other.upgrade()
    async with store.begin(), other.begin() as inner:
        assert (await inner.execute("SELECT 1")).scalar() == 1
    await other.aclose()


async def test_waiters_are_served_in_turn(store: SqliteStore) -> None:
    order: list[int] = []

    async def write(number: int) -> None:
        async with store.begin():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(write(number) for number in range(10)))
    assert order == list(range(10))


async def test_a_writer_that_gives_up_waiting_leaves_the_turn_to_others(store: SqliteStore) -> None:
    async with store.begin():
        impatient = asyncio.create_task(names(store))
        patient = asyncio.create_task(names(store))
        await asyncio.sleep(0)
        impatient.cancel()
    assert await patient == []
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_another_process_that_keeps_the_lock_is_named(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock, patience=0.05)
    await store.upgrade()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="left open"):
        await names(store)
    blocker.execute("ROLLBACK")
    async with store.begin() as tx:
        assert (await tx.execute("SELECT 1")).scalar() == 1
    blocker.close()
    await store.aclose()


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "  rollback",
        "END TRANSACTION",
        "begin immediate",
        "/* x */ COMMIT",
        "-- done\nCOMMIT",
        "/* /* */ COMMIT",
        "; COMMIT",
        "ROLLBACK TRANSACTION tomorrow",
    ],
)
async def test_a_statement_that_would_end_the_transaction_is_refused(store: SqliteStore, sql: str) -> None:
    async with store.begin() as tx:
        with pytest.raises(StoreError, match="not yours"):
            await tx.execute(sql)
        with pytest.raises(StoreError, match="not yours"):
            tx.connection.execute(sql)
        with pytest.raises(StoreError, match="not yours"):
            tx.connection.cursor().execute(sql)
        with pytest.raises(StoreError, match="not yours"):
            tx.connection.cursor().connection.cursor().executescript(sql)
        with pytest.raises(StoreError, match="not yours"):
            tx.connection.cursor().connection.commit()
        await tx.execute("INSERT INTO mine VALUES ('a')")
    assert await names(store) == ["a"]


async def test_a_trigger_is_made_although_its_text_has_an_end(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TRIGGER twice AFTER INSERT ON mine BEGIN SELECT 1; END")
        tx.connection.execute("INSERT INTO mine VALUES ('a')")
    assert await names(store) == ["a"]


async def test_savepoints_are_free(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO mine VALUES ('a')")
        await tx.execute("SAVEPOINT s")
        await tx.execute("INSERT INTO mine VALUES ('b')")
        await tx.execute("ROLLBACK TO s")
        await tx.execute("RELEASE s")
    assert await names(store) == ["a"]


async def test_a_transaction_ended_behind_our_back_is_reported(store: SqliteStore) -> None:
    with pytest.raises(TransactionClosed, match="ended inside its block"):
        await end_behind_our_back(store)
    assert await names(store) == []


async def end_behind_our_back(store: SqliteStore) -> None:
    async with store.begin() as tx:
        tx.connection.execute("INSERT INTO mine VALUES ('a')")
        cursor = tx.connection.cursor()
        with pytest.raises(sqlite3.IntegrityError):
            cursor.execute("INSERT OR ROLLBACK INTO mine VALUES ('a')")
        with pytest.raises(TransactionClosed, match="rolled back inside"):
            cursor.execute("INSERT INTO mine VALUES ('would commit by itself')")
        with pytest.raises(TransactionClosed, match="rolled back inside"):
            cursor.executemany("INSERT INTO mine VALUES (?)", [("b",), ("c",)])
        with pytest.raises(TransactionClosed, match="rolled back inside"):
            await tx.execute("INSERT INTO mine VALUES ('would commit by itself')")
        with pytest.raises(TransactionClosed, match="rolled back inside"):
            tx.connection.execute("INSERT INTO mine VALUES ('would too')")


async def test_a_lent_connection_is_taken_back(store: SqliteStore) -> None:
    async with store.begin() as tx:
        connection = tx.connection
        connection.execute("INSERT INTO mine VALUES ('a')")
        cursor = connection.execute("SELECT 1 UNION SELECT 2")
        assert cursor.fetchone() == (1,)
    with pytest.raises(TransactionClosed):
        connection.execute("INSERT INTO mine VALUES ('late')")
    with pytest.raises(TransactionClosed):
        cursor.execute("INSERT INTO mine VALUES ('late')")
    with pytest.raises(sqlite3.ProgrammingError):
        cursor.fetchone()
    assert await names(store) == ["a"]


async def test_an_abandoned_transaction_with_a_half_read_cursor_stops_nobody(store: SqliteStore) -> None:
    with pytest.raises(DeadlineExceeded):
        await half_read_then_too_slow(store)
    assert await asyncio.wait_for(names(store), 5) == []


async def half_read_then_too_slow(store: SqliteStore) -> None:
    async with store.begin() as tx:
        cursor = tx.connection.execute("INSERT INTO mine VALUES ('a'), ('b') RETURNING name")
        assert cursor.fetchone() == ("a",)
        kept.append(cursor)
        raise DeadlineExceeded("too slow")


kept: list[sqlite3.Cursor] = []


async def test_a_thread_that_lives_on_is_stopped_and_cannot_write(store: SqliteStore) -> None:
    running, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def handler(connection: sqlite3.Connection) -> None:
        running.set()
        for sql in (ENDLESS, "INSERT INTO mine VALUES ('late')"):
            try:
                connection.execute(sql)
            except Exception as error:
                errors.append(error)
        ended.set()

    with pytest.raises(DeadlineExceeded):
        await run_too_long(store, handler, running)
    await asyncio.to_thread(ended.wait, 10)
    assert [type(error) for error in errors] == [sqlite3.OperationalError, TransactionClosed]
    assert await names(store) == []


async def run_too_long(store: SqliteStore, handler: object, running: threading.Event) -> None:
    async with store.begin() as tx:
        tx.connection.execute("INSERT INTO mine VALUES ('lost')")
        threading.Thread(target=handler, args=(tx.connection,)).start()  # type: ignore[arg-type]
        await asyncio.to_thread(running.wait, 10)
        await asyncio.sleep(0.02)
        raise DeadlineExceeded("too slow")


async def test_an_abandoned_connection_is_replaced(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name TEXT)")
        before = tx.ready()
    await abandoned(store)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        before.execute("SELECT 1")
    async with store.begin() as tx:
        assert tx.ready() is not before
    assert await names(store) == []
    await store.aclose()


async def test_an_ordinary_error_keeps_the_connection(store: SqliteStore) -> None:
    async with store.begin() as tx:
        before = tx.ready()
    with pytest.raises(StoreError, match="UNIQUE"):
        await insert_twice(store)
    async with store.begin() as tx:
        assert tx.ready() is before
    assert await names(store) == []


async def insert_twice(store: SqliteStore) -> None:
    async with store.begin() as tx:
        for _ in range(2):
            await tx.execute("INSERT INTO mine VALUES ('a')")


async def test_a_commit_that_a_constraint_refuses_is_rolled_back(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE child (name TEXT REFERENCES mine (name) DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        await insert_orphan(store)
    async with store.begin() as tx:
        assert (await tx.execute("SELECT count(*) FROM child")).scalar() == 0


async def insert_orphan(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO child VALUES ('nobody')")


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.timers.next_due()
    with pytest.raises(StoreError, match="closed"):
        await names(store)


async def test_closing_waits_for_nobody_and_the_open_transaction_still_commits(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name TEXT)")
        await store.aclose()
        await tx.execute("INSERT INTO mine VALUES ('a')")
    again = SqliteStore(path, clock=clock)
    assert await names(again) == ["a"]
    await again.aclose()

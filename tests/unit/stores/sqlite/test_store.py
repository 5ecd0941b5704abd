from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.clock import ManualClock
from posthouse.errors import CommitUnknown, ConfigurationError, StoreError, StoreUnavailable
from posthouse.store import OutboxRow, Restoration
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import row as sample
from posthouse.testing.store_contract.steps import drain


def row(key: str | None = "k", topic: str = "t") -> OutboxRow:
    return OutboxRow(topic=topic, tenant="t1", event_id="e", body=b"", key=key)


async def add(store: SqliteStore, *rows: OutboxRow) -> None:
    async with store.begin() as tx:
        await store.outbox.append(tx, rows)


# Tables


def test_a_url_is_not_taken_for_the_name_of_a_file() -> None:
    with pytest.raises(ConfigurationError, match="is a URL"):
        SqliteStore("sqlite://")


async def test_a_database_from_a_newer_release_is_refused(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("INSERT INTO posthouse_migration VALUES ('9999_future', 0)")
    await store.aclose()
    older = SqliteStore(path, clock=clock)
    for use in (older.upgrade(), older.pending_migrations(), older.timers.next_due(), add(older, row())):
        with pytest.raises(StoreError, match="9999_future"):
            await use
    await older.aclose()


async def test_every_table_has_our_prefix(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock)
    await store.upgrade()
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        ]
    assert [name for name in names if not name.startswith("posthouse_")] == []


async def test_a_migration_that_fails_leaves_nothing(path: Path, clock: ManualClock) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE posthouse_timer (mine TEXT)")
    store = SqliteStore(path, clock=clock)
    with pytest.raises(StoreError, match="posthouse_timer"):
        await store.upgrade()
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("posthouse_timer",)]


async def test_the_number_of_shards_is_fixed_at_creation(path: Path, clock: ManualClock) -> None:
    first = SqliteStore(path, clock=clock, shards=4)
    await first.upgrade()
    assert len(await first.outbox.lease("a", 10)) == 4
    await first.aclose()
    unsaid = SqliteStore(path, clock=clock)
    await unsaid.upgrade()
    assert len(await unsaid.outbox.lease("a", 10)) == 4
    await unsaid.aclose()
    other = SqliteStore(path, clock=clock, shards=8)
    for use in (other.upgrade(), other.timers.next_due()):
        with pytest.raises(ConfigurationError, match="4 shards"):
            await use
    await other.aclose()


@pytest.mark.parametrize("shards", [0, 63])
def test_an_impossible_number_of_shards_is_refused(shards: int) -> None:
    with pytest.raises(ConfigurationError, match="1 to 62"):
        SqliteStore(":memory:", shards=shards)


async def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(tmp_path / "nowhere" / "store.db", clock=clock)
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.upgrade()


async def test_lineage_grows_after_a_restore_and_nobody_holds_a_shard(store: SqliteStore) -> None:
    await add(store, row())
    poll = await store.outbox.poll(await store.outbox.lease("a", 10), 10)
    assert await store.restored(dry_run=True) == Restoration(lineage=2, again=1)
    assert await store.restored() == Restoration(lineage=2, again=1)
    assert not await store.outbox.settle("a", poll, [])
    await add(store, row())
    found = (await store.outbox.poll(await store.outbox.lease("a", 10), 10)).rows
    assert [(one.sequence, one.lineage) for one in found] == [(1, 1), (2, 2)]


# Polls


async def test_a_settled_poll_moves_every_shard_so_that_nothing_is_scanned_twice(store: SqliteStore) -> None:
    shards = await store.outbox.lease("a", 10)
    await add(store, row())
    poll = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", poll, [])
    async with store.begin() as tx:
        assert await tx.execute("SELECT DISTINCT cursor FROM posthouse_shard") == [(1,)]
    assert (await store.outbox.poll(shards, 10)).cursor is None, "nothing to settle"


async def test_shards_with_different_cursors_are_read_without_repeats(store: SqliteStore) -> None:
    for owner in ("a", "b", "a", "b"):
        shards = await store.outbox.lease(owner, 10)
    await add(store, *(row(f"k{n}") for n in range(50)))
    behind = await store.outbox.poll(shards, 100)
    assert await store.outbox.settle("b", behind, [])
    await store.outbox.release("b")
    every = await store.outbox.lease("a", 10)
    seen = []
    while (poll := await store.outbox.poll(every, 7)).rows:
        seen += [found.id for found in poll.rows]
        assert await store.outbox.settle("a", poll, [])
    assert sorted([*seen, *(found.id for found in behind.rows)]) == list(range(1, 51))
    assert seen == sorted(seen)


async def test_an_empty_poll_still_tells_who_holds_the_shards(store: SqliteStore, clock: ManualClock) -> None:
    poll = await store.outbox.poll(await store.outbox.lease("a", 10), 10)
    assert await store.outbox.settle("a", poll, [])
    clock.advance(11)
    assert not await store.outbox.settle("a", poll, [])


async def test_an_idempotency_key_is_forgotten_after_its_window(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock, idempotency_window=60)
    await store.upgrade()
    one = OutboxRow(topic="t", tenant="t1", event_id="e1", body=b"", idempotency_key="i")
    two = OutboxRow(topic="t", tenant="t1", event_id="e2", body=b"", idempotency_key="i")
    await add(store, one)
    clock.advance(59)
    await add(store, two)
    assert (await store.counts()).committed == {"t": 1}
    clock.advance(2)
    await add(store, two)
    assert (await store.counts()).committed == {"t": 2}
    clock.advance(61)
    await store.outbox.purge(10)
    async with store.begin() as tx:
        assert (await tx.execute("SELECT count(*) FROM posthouse_idempotency")).scalar() == 0
    await store.aclose()


# Wake-up


async def test_a_commit_in_this_process_wakes_at_once(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("FIRST_PAUSE", "LAST_PAUSE"):
        monkeypatch.setattr(f"posthouse.stores.sqlite.store.{pause}", 60.0)
    seen = await store.changed(-1, 0)
    waiting = [asyncio.create_task(store.changed(seen, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    await add(store, row())
    assert [await asyncio.wait_for(one, 5) for one in waiting] == [seen + 1] * 3


async def test_moving_the_clock_ends_a_wait(store: SqliteStore, clock: ManualClock) -> None:
    seen = await store.changed(-1, 0)
    waiting = asyncio.create_task(store.changed(seen, 3600))
    await asyncio.sleep(0)
    clock.advance(3601)
    assert await asyncio.wait_for(waiting, 5) == seen


async def test_a_rolled_back_row_changes_nothing(store: SqliteStore) -> None:
    seen = await store.changed(-1, 0)
    with pytest.raises(ZeroDivisionError):
        await add_then_fail(store)
    assert await store.changed(seen, 0.01) == seen


async def add_then_fail(store: SqliteStore) -> None:
    async with store.begin() as tx:
        await store.outbox.append(tx, [row()])
        raise ZeroDivisionError


# Housekeeping


async def test_the_wal_stays_short(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock, synchronous="NORMAL")
    await store.upgrade()
    for _ in range(64):
        await add(store, OutboxRow(topic="t", tenant="t1", event_id="e", body=bytes(500_000)))
    assert path.with_name("store.db-wal").stat().st_size < 16 * 1024 * 1024
    await store.aclose()


def test_optional_libraries_are_imported_only_when_used() -> None:
    code = "import sys, posthouse.stores; sys.exit(bool({'sqlalchemy', 'aiosqlite'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


async def test_a_file_whose_name_leads_nowhere_after_a_commit_is_an_unknown_one(path: Path, clock: ManualClock) -> None:
    store = SqliteStore(path, clock=clock)
    await store.upgrade()

    def lose() -> None:
        path.unlink()
        path.symlink_to(path)  # asking for it is an error of the system

    async def add_while_it_is_lost() -> None:
        async with store.begin() as tx:
            await store.outbox.append(tx, [row("lost")])
            lose()

    with pytest.raises(CommitUnknown, match="taken away"):
        await add_while_it_is_lost()
    await store.aclose()


async def test_a_file_that_is_replaced_under_a_process_takes_no_more_commits(path: Path, clock: ManualClock) -> None:
    """A backup was moved to its name: what is written to the old file is in no file that anybody will open."""
    store = SqliteStore(path, clock=clock)
    await store.upgrade()
    await add(store, row("before"))
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as copy:
        source.backup(copy)

    async def add_while_it_is_replaced() -> None:
        async with store.begin() as tx:
            await store.outbox.append(tx, [row("lost")])
            backup.replace(path)

    with pytest.raises(CommitUnknown, match="replaced"):
        await add_while_it_is_replaced()
    with pytest.raises(StoreUnavailable, match="stop every process"):
        await add(store, row("refused"))
    await store.aclose()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    again = SqliteStore(path, clock=clock)
    shards = await again.outbox.lease("a", 60)
    assert [one.key for one in (await again.outbox.poll(shards, 10)).rows] == ["before"]
    await again.aclose()


async def test_what_is_kept_of_what_was_sent_takes_no_more_room_than_it_may(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path / "shop.db", clock=clock)
    await store.upgrade()
    kept: list[int] = []
    for _ in range(6):
        await add(store, *(sample("k", body=bytes(850)) for _ in range(10)))
        await drain(store)
        clock.advance(10)
        await store.outbox.purge(1000, keep=3600.0, room=25_000)
        kept.append(len(await store.outbox.kept(0, 1000)))
    assert kept == [10, 20, 20, 20, 20, 20], "of the last ten thousand bytes each, two fit"
    assert (await store.outbox.kept(0, 1000))[0].sequence == 41, "the oldest went first"
    await store.aclose()

"""Fault 20: the disk is full. A publish is refused clearly, reads work, space brings it back, the file is sound."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest

from posthouse.clock import SystemClock
from posthouse.errors import StoreFull, TransactionClosed
from posthouse.store import OutboxRow
from posthouse.stores.sqlite import SqliteStore


def row(number: int, size: int = 50_000) -> OutboxRow:
    return OutboxRow(topic="t", tenant="t1", event_id=f"e{number}", body=bytes(size), key="k")


async def publish(store: SqliteStore, number: int, size: int = 50_000) -> None:
    async with store.begin() as tx:
        await store.outbox.append(tx, [row(number, size)])


async def fill(store: SqliteStore) -> int:
    """Publish until the disk is full; how many got in."""
    for number in range(1000):
        try:
            await publish(store, number)
        except StoreFull:
            return number
    raise AssertionError("it never got full")


async def limit_pages(store: SqliteStore, pages: int) -> None:
    async with store.begin() as tx:
        connection = tx.ready()
    connection.execute(f"PRAGMA max_page_count={pages}")


@pytest.mark.parametrize("place", ["file", "memory"])
async def test_a_full_disk_refuses_events_and_recovers(tmp_path: Path, place: str) -> None:
    store = SqliteStore(tmp_path / "store.db" if place == "file" else ":memory:", clock=SystemClock())
    await store.upgrade()
    await limit_pages(store, 200)
    fitted = await fill(store)
    assert fitted > 5
    shards = await store.outbox.lease("relay", 10)
    assert len((await store.outbox.poll(shards, 1000)).rows) == fitted, "reads work"
    assert (await store.counts()).committed == {"t": fitted}
    await limit_pages(store, 100_000)
    await publish(store, 9999)
    last = (await store.outbox.poll(shards, 1000)).rows[-1]
    assert (last.event_id, last.sequence) == ("e9999", fitted + 1), "the refused ones left no gap"
    async with store.begin() as tx:
        assert (await tx.execute("PRAGMA integrity_check")).scalar() == "ok"
    await store.aclose()


async def test_a_handler_that_swallows_the_error_does_not_commit_half(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", clock=SystemClock())
    await store.upgrade()
    await limit_pages(store, 200)
    fitted = await fill(store)
    with pytest.raises((TransactionClosed, StoreFull)):
        await swallow(store)
    assert (await store.counts()).committed == {"t": fitted}
    await store.aclose()


async def swallow(store: SqliteStore) -> None:
    async with store.begin() as tx:
        with pytest.raises(StoreFull):
            await store.outbox.append(tx, [row(1, 500_000)])
        await store.outbox.append(tx, [row(2, 1)])


WRITER = """
    import asyncio, json, resource, sys
    from posthouse.clock import SystemClock
    from posthouse.errors import CommitUnknown, StoreError
    from posthouse.store import OutboxRow
    from posthouse.stores.sqlite import SqliteStore

    async def publish(store, name):
        async with store.begin() as tx:
            await store.outbox.append(tx, [OutboxRow(topic="t", tenant="t1", event_id=name, body=bytes(50_000), key="k")])

    async def main(path):
        store = SqliteStore(path, clock=SystemClock())
        await store.upgrade()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        acknowledged, refused, unknown = [], [], []
        for number in range(40):
            try:
                await publish(store, f"e{number}")
                acknowledged.append(f"e{number}")
            except CommitUnknown:
                unknown.append(f"e{number}")
            except StoreError as error:
                refused.append(f"e{number}")
        readable = (await store.counts()).committed["t"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await publish(store, "after")
        print(json.dumps([acknowledged, refused, unknown, readable]))
        await store.aclose()

    asyncio.run(main(sys.argv[1]))
"""


def test_a_file_that_may_not_grow_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The system refuses the write in the middle of a commit: nobody is told that it happened."""
    path = tmp_path / "store.db"
    done = subprocess.run(
        [sys.executable, "-c", dedent(WRITER), str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    acknowledged, refused, unknown, readable = json.loads(done.stdout)
    assert len(acknowledged) > 5
    assert refused or unknown
    assert readable == len(acknowledged)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT event_id, sequence FROM posthouse_outbox ORDER BY id").fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    stored = [name for name, _ in rows]
    assert set(acknowledged) <= set(stored) <= {*acknowledged, *unknown, "after"}
    assert stored[-1] == "after"
    assert [number for _, number in rows] == list(range(1, len(rows) + 1))

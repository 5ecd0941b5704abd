"""Whoever compacts and is overtaken changes nothing, and an entry that could not be is read by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.errors import ArchiveDamaged, ArchiveOvertaken
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.log import Entry, entry_name, read_log, read_manifest
from posthouse.history.archive.places import Place, open_place
from posthouse.history.archive.verifying import verify
from posthouse.store import ArchivePlan, ArchiveTable, Store
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import NAME, doubled_and_lost, member, published, until_archived


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store: Store = SqliteStore(":memory:", clock=ManualClock())
    await store.upgrade()
    yield store
    await store.aclose()


class Halting:
    """A table that halts whoever looks at the plans, once."""

    def __init__(self, table: ArchiveTable) -> None:
        self._table = table
        self.armed = False
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    async def plans(self, archive: str) -> Sequence[ArchivePlan]:
        found = await self._table.plans(archive)
        if self.armed:
            self.armed = False
            self.reached.set()
            await self.go_on.wait()
        return found


async def test_opening_again_beside_a_commit_lets_no_overtaken_entry_through(tmp_path: Path, store: Store) -> None:
    clock = ManualClock()
    place, broker = open_place(f"file://{tmp_path}"), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    table = Halting(store.archives)
    slow = Journal(NAME, place, table, clock, "slow")  # type: ignore[arg-type]
    fast = Journal(NAME, place, store.archives, clock, "fast")
    await slow.open()
    await fast.open()
    old = min(slow.manifest.files)
    seen = slow.manifest.generation
    table.armed = True
    late = asyncio.create_task(slow.commit("expired", remove=[old], seen=seen))
    await asyncio.wait_for(table.reached.wait(), 10.0)
    await fast.commit("expired", remove=[old], seen=seen)
    opening = asyncio.create_task(slow.open())
    await asyncio.sleep(0.3)
    table.go_on.set()
    with pytest.raises(ArchiveOvertaken):
        await late
    await opening
    assert [entry.remove for entry in read_log(place)].count((old,)) == 1
    assert slow.generation == slow.manifest.generation == len(read_log(place))
    assert verify(place).sound
    doubled, _ = doubled_and_lost(place, frames)
    assert doubled == []


def spoil(place: Place, **said: object) -> None:
    """Write a next entry as no member would."""
    entries = read_log(place)
    last = entries[-1]
    entry = Entry(generation=last.generation + 1, id="x", why="compacted", at=last.at, by="y")
    place.put_new(entry_name(entry.generation), msgspec.json.encode(msgspec.structs.replace(entry, **said)))


async def test_an_entry_that_removes_what_is_not_live_is_refused_by_every_reader(archive: Path, store: Store) -> None:
    place = open_place(f"file://{archive}")
    files = [*read_manifest(place).files.values()]
    spoil(place, remove=(files[0].name,))
    spoil(
        place, remove=(files[0].name,), add=(msgspec.structs.replace(files[1], name="data/hot/t/2027-01-01/z.parquet"),)
    )
    with pytest.raises(ArchiveDamaged, match="which is not live"):
        read_manifest(place)
    found = [finding for finding in verify(place).findings if finding.kind == "log"]
    assert [finding.name for finding in found] == [entry_name(len(read_log(place)))]
    assert "which is not live" in found[0].words


async def test_a_file_that_is_live_is_not_added_again(archive: Path) -> None:
    place = open_place(f"file://{archive}")
    spoil(place, add=(next(iter(read_manifest(place).files.values())),))
    with pytest.raises(ArchiveDamaged, match="live already"):
        read_manifest(place)
    assert not verify(place).sound

"""Compacting: one file where there were several, exactly once, whoever else is at it; and the reader sees one form or the other."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, new_id
from posthouse.history.archive.compacting import Compactor
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.log import read_manifest
from posthouse.history.archive.places import Place, open_place
from posthouse.history.archive.reader import Reader
from posthouse.history.archive.reading import Range
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.archive.verifying import verify
from posthouse.store import ArchiveTable, Store
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import (
    NAME,
    Crash,
    Fuse,
    FusedPlace,
    FusedTable,
    doubled_and_lost,
    member,
    published,
    until_archived,
)

SETTINGS = ArchiveSettings(every=0.0, lease=30.0, look=0.0, compact_from=2, keeps_gone=100.0)


class Scene:
    """Small files of three rounds, and their members' housekeeping."""

    def __init__(self, tmp_path: Path, clock: ManualClock) -> None:
        self.clock = clock
        self.place = open_place(f"file://{tmp_path}/{new_id()}")
        self.store: Store = SqliteStore(tmp_path / new_id(), clock=clock)
        self.frames: list[Any] = []

    async def begin(self, rounds: int = 3) -> None:
        await self.store.upgrade()
        self.broker = MemoryBroker(clock=self.clock)
        for turn in range(rounds):
            self.frames += await published(self.broker, 9, first=9 * turn)
            await until_archived(
                self.broker, self.clock, member(self.broker, self.place, self.store.archives, self.clock), step=0.001
            )

    async def compactor(self, name: str = "one", fuse: Fuse | None = None) -> Compactor:
        place, table = self.place, self.store.archives
        if fuse is not None:
            place, table = cast(Place, FusedPlace(place, fuse)), cast(ArchiveTable, FusedTable(table, fuse))
        journal = Journal(NAME, place, table, self.clock, name)
        await journal.open()
        return Compactor(NAME, place, table, journal, self.clock, SETTINGS)

    async def whole(self) -> None:
        assert doubled_and_lost(self.place, self.frames) == ([], [])
        plans = [name for plan in await self.store.archives.plans(NAME) for name in plan.objects]
        found = verify(self.place, planned=lambda: plans)
        assert found.sound, found.findings


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path, ManualClock())
    await scene.begin()
    yield scene
    await scene.store.aclose()


async def test_small_files_of_a_folder_become_one_and_the_events_stay(scene: Scene) -> None:
    before = read_manifest(scene.place)
    assert len(before.files) == 12
    compactor = await scene.compactor()
    for _ in range(4):
        await compactor.tidy()
    after = read_manifest(scene.place)
    assert len(after.files) == 4
    assert sum(file.rows for file in after.files.values()) == sum(file.rows for file in before.files.values())
    assert set(after.gone) == set(before.files)
    await scene.whole()


async def test_events_are_read_in_the_order_of_the_log_before_and_after(scene: Scene) -> None:
    reader = Reader(scene.place)
    wanted = Range(topics=["shop.orders.order"])
    before = [event async for found in reader.read(wanted, batch=5) for event in found]
    compactor = await scene.compactor()
    for _ in range(4):
        await compactor.tidy()
    after = [event async for found in reader.read(wanted, batch=5) for event in found]
    assert [event.frame for event in after] == [event.frame for event in before]
    assert [event.position for event in after] == list(range(27))
    mine = {frame.id: frame for frame in scene.frames}
    assert all(event.frame == mine[event.frame.id] for event in after)


async def test_whoever_reads_while_files_are_compacted_sees_each_event_once(scene: Scene) -> None:
    found = []
    compactor = await scene.compactor()
    async for events in Reader(scene.place).read(Range(), batch=4):
        found += [event.frame.id for event in events]
        await compactor.tidy()
    assert sorted(found) == sorted(frame.id for frame in scene.frames)


async def test_what_was_replaced_goes_when_nobody_can_be_reading_it(scene: Scene) -> None:
    compactor = await scene.compactor()
    for _ in range(4):
        await compactor.tidy()
    assert len(list(scene.place.names("data/"))) == 16
    scene.clock.advance(101.0)
    await compactor.tidy()
    assert {found.name for found in scene.place.names("data/")} == set(read_manifest(scene.place).files)
    assert read_manifest(scene.place).gone == {}
    await scene.whole()


async def test_a_source_that_was_changed_is_left_alone_and_stays_to_be_found(scene: Scene) -> None:
    name = sorted(read_manifest(scene.place).files)[0]
    path = cast(Any, scene.place).path / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    compactor = await scene.compactor()
    for _ in range(8):
        await compactor.tidy()
    assert name in read_manifest(scene.place).files
    assert [finding.name for finding in verify(scene.place).findings if finding.kind == "changed"] == [name]


async def test_a_missing_source_stops_nothing_else(scene: Scene) -> None:
    name = sorted(read_manifest(scene.place).files)[0]
    scene.place.delete([name])
    compactor = await scene.compactor()
    for _ in range(8):
        await compactor.tidy()
    found = verify(scene.place)
    assert [(finding.kind, finding.name) for finding in found.findings if finding.kind == "missing"] == [
        ("missing", name)
    ]
    assert len(read_manifest(scene.place).files) == 5, "all others were compacted"


async def test_two_that_compact_the_same_files_replace_them_once(scene: Scene) -> None:
    slow = await scene.compactor("slow")
    manifest = slow._journal.manifest
    sources = slow.choose(manifest, set())
    fast = await scene.compactor("fast")
    for _ in range(4):
        await fast.tidy()
    await slow._compact(manifest, sources)
    assert len(read_manifest(scene.place).files) == 4
    await scene.whole()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_compactor_that_dies_at_any_step_loses_and_doubles_nothing(tmp_path: Path, after: bool) -> None:
    steps = []
    for at in range(1, 300):
        clock = ManualClock()
        scene = Scene(tmp_path, clock)
        await scene.begin(2)
        fuse = Fuse(at, after=after)
        with contextlib.suppress(Crash):
            compactor = await scene.compactor("doomed", fuse)
            for _ in range(4):
                await compactor.tidy()
            clock.advance(200.0)
            await compactor.tidy()
        if not fuse.blown.is_set():
            break
        steps.append(fuse.steps[at - 1])
        await scene.whole()
        clock.advance(40.0)
        heir = await scene.compactor("heir")
        for _ in range(6):
            await heir.tidy()
        clock.advance(200.0)
        await heir.tidy()
        await scene.whole()
        assert len(read_manifest(scene.place).files) == 4
        assert {found.name for found in scene.place.names("data/")} == set(read_manifest(scene.place).files)
        await scene.store.aclose()
    assert {"store.plan", "place.put data", "place.put log", "store.follow", "place.delete"} <= set(steps), steps

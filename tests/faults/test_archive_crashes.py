"""The archive has each event exactly once, wherever a member of it ends: at every statement and at every call of the object store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, new_id
from posthouse.history.archive.places import Place, open_place
from posthouse.store import ArchiveTable, Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import (
    Crash,
    Fuse,
    FusedBroker,
    FusedPlace,
    FusedTable,
    doubled_and_lost,
    member,
    pending,
    published,
    until_archived,
)
from tests.kit.servers.s3 import BUCKET
from tests.kit.waiting import eventually

EVENTS, TWICE = 12, 3
"""In each of two topics, and how many of them come twice."""
MOST = 300
"""Steps that one run may have at most."""

Where = Callable[[], Place]


@pytest.fixture(params=["folder", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Where:
    """Makes an empty place."""
    if request.param == "folder":
        return lambda: open_place(f"file://{tmp_path}/{new_id()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    port = request.getfixturevalue("s3_port")
    return lambda: open_place(f"s3://{BUCKET}/{new_id()}?endpoint=http://127.0.0.1:{port}&region=us-east-1")


@pytest.fixture(params=["sqlite", "postgres"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[ManualClock], Store]]:
    """Makes an empty store."""
    made: list[Store] = []
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def make(clock: ManualClock) -> Store:
        name = f"a{new_id().replace('-', '')}"
        store: Store = (
            PostgresStore(url, clock=clock, schema=name) if url else SqliteStore(tmp_path / name, clock=clock)
        )
        made.append(store)
        return store

    yield make
    for store in made:
        await store.aclose()


class Scene:
    """Events that are to be archived, and somebody who starts to."""

    def __init__(self, store: Store, place: Place, clock: ManualClock, fuse: Fuse) -> None:
        self.store, self.place, self.clock, self.fuse = store, place, clock, fuse
        self.broker = MemoryBroker(clock=clock)
        self.fused = FusedBroker(self.broker, fuse)

    async def begin(self) -> None:
        await self.store.upgrade()
        self.frames = await published(self.broker, EVENTS, twice=TWICE)

    def doomed(self) -> Any:
        table = cast(ArchiveTable, FusedTable(self.store.archives, self.fuse))
        place = cast(Place, FusedPlace(self.place, self.fuse))
        return member(cast(Broker, self.fused), place, table, self.clock, name="doomed")

    async def end_well(self) -> None:
        """Another member does what is left, twice over: once as it comes, once for all that is read again from the beginning."""
        heir = member(self.broker, self.place, self.store.archives, self.clock, name="heir")
        await until_archived(self.broker, self.clock, heir)
        assert doubled_and_lost(self.place, self.frames) == ([], [])
        for topic in {frame.topic for frame in self.frames}:
            await self.broker.seek("shop.archive", topic, position=0)
        late = member(self.broker, self.place, self.store.archives, self.clock, name="late")
        await until_archived(self.broker, self.clock, late)
        assert doubled_and_lost(self.place, self.frames) == ([], [])
        assert late.written == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_member_that_dies_at_any_step_loses_and_doubles_nothing(
    where: Where, stores: Callable[[ManualClock], Store], after: bool
) -> None:
    steps: list[str] = []
    for at in range(1, MOST):
        clock = ManualClock()
        scene = Scene(stores(clock), where(), clock, Fuse(at, after=after))
        await scene.begin()
        with contextlib.suppress(Crash):
            await until_archived(scene.broker, clock, scene.doomed())
        if not scene.fuse.blown.is_set():
            break
        steps.append(scene.fuse.steps[at - 1])
        await scene.end_well()
    assert {"store.plan", "store.follow", "place.put data", "place.put log", "broker.ack"} <= set(steps), steps
    print(f"{len(steps)} steps: {steps}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_member_that_halts_at_any_step_and_wakes_late_loses_and_doubles_nothing(
    where: Where, stores: Callable[[ManualClock], Store], after: bool
) -> None:
    """The broker and the others take it for dead, and do its work; then it goes on as if nothing had happened."""
    halted = []
    for at in range(1, MOST):
        clock = ManualClock()
        scene = Scene(stores(clock), where(), clock, Fuse(at, after=after, halts=True))
        await scene.begin()
        zombie = asyncio.create_task(until_archived(scene.broker, clock, scene.doomed()))
        await _halted_or_done(scene.fuse, zombie)
        if not scene.fuse.blown.is_set():
            await zombie
            break
        halted.append(scene.fuse.steps[at - 1])
        for stream in scene.fused.streams:
            await stream.real.aclose()
        heir = member(scene.broker, scene.place, scene.store.archives, clock, name="heir")
        try:
            await until_archived(scene.broker, clock, heir)
        finally:
            scene.fuse.go_on.set()
        await zombie
        await scene.end_well()
    assert {"store.plan", "place.put data", "place.put log", "store.follow", "broker.ack"} <= set(halted), halted
    print(f"{len(halted)} steps: {halted}")


@pytest.mark.slow
async def test_two_members_of_a_group_share_the_work_and_double_nothing(
    where: Where, stores: Callable[[ManualClock], Store]
) -> None:
    clock = ManualClock()
    scene = Scene(stores(clock), where(), clock, Fuse())
    await scene.begin()
    members = [member(scene.broker, scene.place, scene.store.archives, clock, name=f"m{n}") for n in range(3)]
    await until_archived(scene.broker, clock, *members)
    assert await pending(scene.broker) == 0
    await scene.end_well()
    assert sum(each.written for each in members) == len(scene.frames)


async def _halted_or_done(fuse: Fuse, task: asyncio.Task[None]) -> None:
    await eventually(lambda: task.done() or fuse.blown.is_set())

"""Running processes feed the generation that is read, notice a swap by themselves, and say how fresh it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse import Event, Payload, Service
from posthouse.app import app_of
from posthouse.processes import Model, Plan
from posthouse.processes.projection import feeding
from posthouse.processes.projection.freshness import freshness
from posthouse.testing import Harness, rehost
from posthouse.watch.status import drained
from tests.kit.waiting import eventually
from tests.unit.processes.projection.listings import Hotel


async def test_claim_and_rows_commit_together() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        hotel.poison = "r2"
        await hotel.list_room("r1", 1)
        await hotel.list_room("r2", 1)
        await harness.settled()
        assert await hotel.rows() == [("t1", "r1", 1, 1)]
        assert [held.entry.key for held in await harness.held(hotel.service)] == ["r2"]
        hotel.poison = ""
        await harness.advance(60.0)
        assert await hotel.rows() == [("t1", "r1", 1, 1), ("t1", "r2", 1, 1)]


async def test_the_replay_of_all_events_changes_nothing() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 1, 2, 3)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        await hotel.list_room("r1", 4)
        await harness.assert_replay_safe()


async def test_other_processes_notice_a_swap_and_feed_the_new_generation(tmp_path: Path) -> None:
    """Two services on one store and one log, as two processes are; the rebuild runs beside them and ends."""
    one, other, builder = Hotel(), Hotel(), Hotel()
    for hotel in (one, other, builder):
        rehost(
            hotel.service,
            store=f"sqlite:///{tmp_path}/rooms.db?synchronous=NORMAL",
            broker=f"embedded:///{tmp_path}/log.db",
            clock=app_of(hotel.service).clock,
        )
    async with one.service.running(), other.service.running():
        await one.list_room("r1", 1, 2)
        await drained(one.service, timeout=20)
        await app_of(builder.service).open()
        done = await app_of(builder.service).projections.rebuild("listings")
        await builder.service.aclose()
        assert (done.generation, await one.live(), await other.live()) == (2, 2, 2)
        await one.list_room("r1", 3)
        await eventually(lambda: one.count(2) + other.count(2) == 1)
        assert await other.rows() == [("t1", "r1", 3, 3)]


async def test_a_process_leaves_a_generation_of_another_version_alone(caplog: pytest.LogCaptureFixture) -> None:
    hotel = Hotel(version=1)
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 1)
        await harness.settled()
        async with app_of(hotel.service).store.begin() as tx:
            await tx.execute("UPDATE posthouse_generation SET version = 2, number = 2")
            await hotel.tables(Model("listings", 2, tx))
        with caplog.at_level(logging.WARNING, "posthouse.projection"):
            harness.clock.advance(1.5)
            await eventually(lambda: "leaves it to others" in caplog.text)
        assert "generation 2 was built by version 2, this process has version 1" in caplog.text
        assert "start processes of that version" in caplog.text
        await hotel.list_room("r1", 2)
        keeper = harness._runtimes[0].projections
        assert keeper is not None
        assert not keeper._members
        assert hotel.count(2) == 0


async def test_a_release_with_a_new_version_serves_the_old_generation_until_the_rebuild() -> None:
    old, new = Hotel(version=1), Hotel(version=2)
    async with Harness(old.service) as harness:
        await old.list_room("r1", 1)
        await harness.settled()
        store = app_of(old.service).store
        before = rehost(new.service, store=store, broker=harness.broker, clock=harness.clock)
        await app_of(new.service).open()
        assert await new.live() == 1
        done = await app_of(new.service).projections.rebuild("listings")
        assert (done.generation, await new.rows()) == (2, [("t1", "r1", 1, 1)])
        (_, row) = await app_of(new.service).store.projections.generations()
        assert row.version == 2
        assert (old.count(2), new.count(2)) == (0, 1)
        new.service.hosted_by(before)


async def test_the_tables_of_one_transaction_are_of_one_generation() -> None:
    hotel = Hotel()
    async with Harness(hotel.service):
        async with hotel.service.transaction("t1") as tx:
            first = await hotel.listings.table(tx, "listing")
            await tx.execute("UPDATE posthouse_generation SET number = 2")
            assert (
                await hotel.listings.table(tx, "other") == first.replace("listing_1", "other_1") == "listings_other_1"
            )
        async with hotel.service.transaction("t1") as tx:
            assert await hotel.listings.table(tx, "listing") == "listings_listing_2"
            assert await hotel.listings.table(tx.connection, "listing") == "listings_listing_2"


class Side:
    """A projection that says something about each event that it applies."""

    def __init__(self) -> None:
        self.service = Service("desk")
        self.calls: list[tuple[int, str]] = []

        @self.service.event("task.done.v1", key="task_id")
        class TaskDone(Payload):
            task_id: str

        @self.service.event("task.shown.v1", key="task_id")
        class TaskShown(Payload):
            task_id: str

        self.TaskDone, self.TaskShown = TaskDone, TaskShown

        self.tasks = self.service.projection("tasks", publishes=[TaskShown])

        @self.tasks.on(TaskDone)
        async def show(event: Event[TaskDone], model: Model) -> None:
            model.publish(TaskShown(task_id=event.data.task_id))
            if model.live:
                self.calls.append((model.generation, event.data.task_id))


async def test_side_effects_are_for_the_live_generation_alone() -> None:
    side = Side()
    async with Harness(side.service) as harness:
        for number in range(3):
            await harness.publish(side.TaskDone(task_id=f"k{number}"))
        await harness.settled()
        assert len(await harness.published(side.TaskShown)) == 3
        await app_of(side.service).projections.rebuild("tasks")
        await harness.settled()
        assert len(await harness.published(side.TaskShown)) == 3
        await harness.publish(side.TaskDone(task_id="k9"))
        await harness.settled()
        assert len(await harness.published(side.TaskShown)) == 4
        assert side.calls == [(1, "k0"), (1, "k1"), (1, "k2"), (2, "k9")]


async def test_what_a_handler_returns_is_not_lost_in_silence() -> None:
    service = Service("desk")

    @service.event("task.done.v1", key="task_id")
    class TaskDone(Payload):
        task_id: str

    async def wrong(event: Event[TaskDone], model: Model):  # type: ignore[no-untyped-def]  # as somebody would write it
        return event.data

    service.projection("tasks").on(TaskDone)(wrong)
    async with Harness(service) as harness:
        await harness.publish(TaskDone(task_id="k1"))
        await harness.settled()
        (held,) = await harness.held(service)
        assert "a projection says facts by model.publish" in held.reason


async def test_status_says_how_fresh_each_generation_is() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        (status,) = await app_of(hotel.service).projections.status()
        assert status.live is not None
        assert (status.live.freshness.seconds, status.live.freshness.lag, status.live.freshness.within) == (
            None,
            0,
            True,
        )
        await hotel.list_room("r1", 1)
        await harness.settled()
        await harness.advance(1.5)
        await _until_status(hotel, applied=True)
        (status,) = await app_of(hotel.service).projections.status()
        assert status.live is not None
        assert (status.live.group, status.live.freshness.seconds, status.live.freshness.lag) == (
            "rooms.listings",
            0.0,
            0.0,
        )
        hotel.poison = "r1"
        await hotel.list_room("r1", 2)
        await harness.settled()
        harness.clock.advance(8.0)
        (status,) = await app_of(hotel.service).projections.status()
        assert status.live is not None
        figures = status.live.freshness
        assert (figures.held, figures.lag, figures.within) == (1, 9.5, False)


def test_the_lag_counts_from_the_last_event_while_something_waits() -> None:
    def figures(*, event_at: float = 90.0, applied_at: float = 91.0, waiting: int = 0, held: int = 0) -> object:
        return freshness(
            now=100.0, event_at=event_at, applied_at=applied_at, since=40.0, budget=5.0, waiting=waiting, held=held
        )

    def seen(given: object) -> Sequence[object]:
        return [getattr(given, name) for name in ("seconds", "lag", "within")]

    assert seen(figures()) == [1.0, 0.0, True]
    assert seen(figures(waiting=3)) == [1.0, 10.0, False]
    assert seen(figures(held=1)) == [1.0, 10.0, False]
    assert seen(figures(event_at=97.0, applied_at=98.0, waiting=3)) == [1.0, 3.0, True]
    assert seen(figures(event_at=0.0, applied_at=0.0, waiting=1)) == [None, 60.0, False]
    assert seen(figures(event_at=95.0, applied_at=91.0)) == [0.0, 0.0, True]


async def _until_status(hotel: Hotel, *, applied: bool) -> None:
    async with asyncio.timeout(10):
        while bool((await app_of(hotel.service).store.projections.generations())[0].applied_at) is not applied:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.005)


async def test_old_events_that_are_published_once_more_are_known_from_the_bulk_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group was made after them and has never seen them: it is the streams' versions that tell."""
    monkeypatch.setattr(feeding, "MOST_KNOWN", 1)
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for room in ("r1", "r2", "r3"):
            await hotel.list_room(room, 1, 2)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        await hotel.list_room("r1", 3)
        await harness.settled()
        before = await hotel.rows()
        await harness.assert_replay_safe()
        await hotel.list_room("r2", 3)
        await harness.settled()
        assert await hotel.rows() == [*before[:1], ("t1", "r2", 3, 3), *before[2:]]

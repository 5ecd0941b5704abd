"""What a read model says of an event is said once, whichever generations apply it, and whatever is swapped meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse import Aggregate, App, Event, Model, Payload, Service, Swap, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, RebuildStopped
from posthouse.processes import Plan
from posthouse.store import HeldEvent, HeldFilter
from posthouse.store.streams import Stream
from posthouse.watch.status import drained
from tests.kit.running import at_work


class Done(Payload):
    """A task is done."""

    task_id: str
    number: int


class Shown(Payload):
    """It can be seen."""

    task_id: str
    number: int
    generation: int


class Desk:
    """Tasks, each seen once; and a table of what was heard of that."""

    def __init__(self, folder: Path, version: int = 1) -> None:
        self.service = Service("desk")
        App(self.service, store=f"sqlite:///{folder}/desk.db", broker=f"embedded:///{folder}/log.db")
        event = self.service.event
        event("task.shown.v1", key="task_id")(Shown)
        self.tasks: Aggregate[int, Done] = self.service.aggregate(
            "task", initial=int, evolve=lambda count, _: count + 1, events=[event("task.done.v1", key="task_id")(Done)]
        )
        self.board = self.service.projection("board", publishes=[Shown], version=version)
        self.board.setup(self._tables)
        self.board.on(Done)(self._show)
        self.service.setup(self._own_tables)
        self.service.on(Shown)(self._hear)
        self.failing: Exception | None = None
        self.calls: list[int] = []

    async def _tables(self, model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('task')} (id TEXT, number INTEGER, PRIMARY KEY (id, number))")

    async def _own_tables(self, tx: Tx) -> None:
        await tx.execute(
            "CREATE TABLE IF NOT EXISTS heard (place INTEGER PRIMARY KEY, number INTEGER, generation INTEGER)"
        )
        await tx.execute("CREATE TABLE IF NOT EXISTS swapped (before INTEGER, after INTEGER)")

    async def _show(self, event: Event[Done], model: Model) -> None:
        if self.failing is not None:
            raise self.failing
        task = event.data
        await model.execute(f"INSERT INTO {model.table('task')} VALUES (?, ?)", (task.task_id, task.number))
        model.publish(Shown(task.task_id, task.number, model.generation))
        if model.live:
            self.calls.append(task.number)

    async def _hear(self, event: Event[Shown], tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO heard (number, generation) VALUES (?, ?)", (event.data.number, event.data.generation)
        )

    async def do(self, *numbers: int) -> None:
        for number in numbers:
            async with self.service.transaction("t1") as tx:
                await self.tasks.append(tx, "k1", [Done("k1", number)], expected="any")

    async def rows(self, sql: str) -> list[tuple[object, ...]]:
        async with self.service.transaction("t1") as tx:
            return list(await tx.execute(sql))

    async def heard(self) -> list[tuple[object, ...]]:
        return await self.rows("SELECT number, generation FROM heard ORDER BY place")

    async def relayed(self) -> None:
        """Everything that was said is in the broker, and nobody has read it."""
        runtime = await app_of(self.service).opened.prepare()
        async with at_work(runtime.relay.run):
            while sum((await app_of(self.service).store.counts()).unsent.values()):  # noqa: ASYNC110 - the relay works
                await asyncio.sleep(0.01)

    async def held(self) -> HeldEvent:
        """The first event that the board could not apply, once there is one."""
        store = app_of(self.service).store
        async with asyncio.timeout(10):
            while True:
                if found := await store.held.find(HeldFilter(consumer="desk.board")):
                    return found[0]
                await asyncio.sleep(0.01)

    async def settled(self) -> None:
        async with self.service.running():
            await drained(self.service)


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    await desk.service.aclose()


SOURCES = pytest.mark.parametrize("source", ["streams", "log"])


def plan(source: str) -> Plan:
    return Plan(source="log" if source == "log" else "streams")


@SOURCES
async def test_what_the_new_generation_alone_has_applied_is_said_at_the_swap(desk: Desk, source: str) -> None:
    """It was ahead: the live one will never come to these events."""
    async with desk.service.running():
        await desk.do(1, 2)
        await drained(desk.service)
    await desk.do(3, 4)
    await desk.relayed()
    await app_of(desk.service).projections.rebuild("board", plan(source))
    await desk.do(5)
    await desk.settled()
    assert await desk.heard() == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]
    assert desk.calls == [1, 2, 5], "what leaves the database is for the live one"


@SOURCES
async def test_what_the_live_generation_said_after_it_was_applied_by_the_new_one_is_not_said_again(
    desk: Desk, source: str
) -> None:
    """The new one was ahead, and gave its effects up to the swap; then the live one caught up before it."""

    async def catch_up(model: Model, swap: Swap) -> None:
        if first:
            first.clear()
            raise ConnectionError("not now")

    first = [True]
    desk.board.swapped(catch_up)
    await desk.do(1, 2, 3)
    await desk.relayed()
    with pytest.raises(RebuildStopped, match=r"nothing was swapped, as .*catch_up failed: ConnectionError"):
        await app_of(desk.service).projections.rebuild("board", plan(source))
    await desk.settled()
    assert await desk.heard() == [(1, 1), (2, 1), (3, 1)]
    await app_of(desk.service).projections.rebuild("board", plan(source))
    await desk.settled()
    assert await desk.heard() == [(1, 1), (2, 1), (3, 1)]


@SOURCES
async def test_what_the_live_generation_said_before_the_new_one_comes_to_it_is_not_said_again(
    desk: Desk, source: str
) -> None:
    """The live one goes on until its processes notice the swap."""
    await desk.do(1)
    await desk.relayed()
    await app_of(desk.service).projections.rebuild("board", plan(source))
    await desk.do(2, 3)
    store = app_of(desk.service).store
    async with store.begin(tenant="t1") as tx:
        second, third = await store.streams.read(tx, Stream("t1", "task", "k1"), after=1)
        assert await store.projections.say(tx, "desk.board", "t1", second.event_id), "as the one before does it"
    await desk.settled()
    assert await desk.heard() == [(1, 2), (3, 2)]
    assert third.version == 3
    assert len(await desk.rows("SELECT * FROM board_task_2")) == 3


@SOURCES
async def test_of_what_the_live_one_could_not_apply_the_effect_is_said_at_the_swap(desk: Desk, source: str) -> None:
    """As when the new code mends what the old one failed at."""
    desk.failing = ValueError("old code")
    async with desk.service.running():
        await desk.do(1)
        await desk.held()
    desk.failing = None
    await app_of(desk.service).projections.rebuild("board", plan(source))
    await desk.settled()
    assert await desk.heard() == [(1, 2)]


async def test_effects_that_are_new_begin_with_the_swap(tmp_path: Path) -> None:
    """Nobody wants the mails of last year because somebody has added them today."""
    quiet = Service("desk")
    App(quiet, store=f"sqlite:///{tmp_path}/desk.db", broker=f"embedded:///{tmp_path}/log.db")
    event = quiet.event("task.done.v1", key="task_id")(Done)
    tasks: Aggregate[int, Done] = quiet.aggregate(
        "task", initial=int, evolve=lambda count, _: count + 1, events=[event]
    )
    board = quiet.projection("board")

    @board.on(Done)
    async def note(event: Event[Done], model: Model) -> None:
        with pytest.raises(ConfigurationError, match="says nothing here"):
            model.publish(event.data)

    async with quiet.running():
        async with quiet.transaction("t1") as tx:
            await tasks.append(tx, "k1", [Done("k1", 1)], expected="new")
        await drained(quiet)
    await quiet.aclose()
    desk = Desk(tmp_path, version=2)
    await desk.do(2)
    await desk.relayed()
    await app_of(desk.service).projections.rebuild("board")
    await desk.do(3)
    await desk.settled()
    assert await desk.heard() == [(3, 2)]
    await app_of(desk.service).projections.rebuild("board")
    await desk.settled()
    assert await desk.heard() == [(3, 2)], "what was past at the first swap stays past"
    await desk.service.aclose()


async def test_a_swap_is_told_once_with_what_has_changed_and_in_its_transaction(desk: Desk) -> None:
    failing = [True, True]

    @desk.board.swapped
    async def note(model: Model, swap: Swap) -> None:
        assert model.live
        rows = await model.execute(f"SELECT count(*) FROM {swap.replaced_table('task')}")
        assert rows.scalar() == 1
        assert (swap.version, swap.replaced_version) == (1, 1)
        await model.execute("INSERT INTO swapped VALUES (?, ?)", (swap.replaced, swap.generation))
        if failing:
            failing.pop()
            raise ValueError("not yet")

    await desk.do(1)
    await desk.settled()
    for _ in range(2):
        with pytest.raises(RebuildStopped, match="note failed: ValueError"):
            await app_of(desk.service).projections.rebuild("board")
        assert await desk.rows("SELECT * FROM swapped") == []
    await app_of(desk.service).projections.rebuild("board")
    assert await desk.rows("SELECT * FROM swapped") == [(1, 2)]
    await app_of(desk.service).projections.rebuild("board")
    assert await desk.rows("SELECT * FROM swapped") == [(1, 2), (2, 3)]


async def test_what_was_not_declared_is_not_said(desk: Desk) -> None:
    async def wrong(event: Event[Shown], model: Model) -> None:
        model.publish(Done("k1", 9))

    desk.board.on(Shown)(wrong)
    await desk.do(1)
    async with desk.service.running():
        held = await desk.held()
    assert "says desk.task.done.v1 and does not declare it: add it to publishes=[…]" in held.reason


async def test_a_handler_of_lists_says_nothing_as_nobody_knew_of_which_event(desk: Desk) -> None:
    async def many(events: Sequence[Event[Shown]], model: Model) -> None:
        model.publish(Shown("k1", 1, 1))

    desk.board.on(Shown)(many)
    await desk.do(1)
    async with desk.service.running():
        held = await desk.held()
    assert "facts are said of one event, by a handler that takes one" in held.reason


def test_only_own_events_are_said(desk: Desk) -> None:
    other = Service("other")

    @other.event("thing.done.v1", key="task_id")
    class Theirs(Payload):
        task_id: str

    with pytest.raises(ConfigurationError, match="belongs to the service 'other': 'desk' cannot publish it"):
        desk.service.projection("second", publishes=[Theirs])
    with pytest.raises(ConfigurationError, match="is to be an async function of a Model and a Swap"):
        desk.board.swapped(desk._tables)  # type: ignore[arg-type]

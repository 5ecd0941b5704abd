"""Faults of handlers: they raise, hang, do not listen, end what is not theirs to end; and what an operator may do then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from posthouse import Event, Payload, Policy, Reject, RetryLater, RetryNow, Service, Tx
from posthouse.app import app_of
from posthouse.contracts import event_type_of
from posthouse.errors import DecodeError, DeskError, StoreError
from posthouse.store import HeldEvent
from posthouse.testing import Harness
from tests.kit.waiting import eventually

from .scene import calm, crafted, put, rows, states
from .stores import House, stores, worded

__all__ = ["stores"]

both = pytest.mark.usefixtures("stores")
"""On SQLite and on PostgreSQL. The other tests are about connections of SQLite, or no matter of the store."""

SHORT = 0.15
"""A deadline in real seconds: handlers run on the loop's own time."""


class Made(Payload):
    key: str
    number: int = 0


class Told(Payload):
    key: str
    number: int = 0


class Seen(Payload):
    number: int = 0


def service(name: str = "plant") -> Service:
    """A service that owns the three events; each test registers its own handlers."""
    made = Service(name)
    made.event("thing.made.v1", key="key")(Made)
    made.event("story.told.v1", key="key")(Told)
    made.event("view.seen.v1")(Seen)
    made.setup(tables)
    return made


async def tables(tx: Tx) -> None:
    await tx.execute(worded("CREATE TABLE IF NOT EXISTS effect ({id}, tenant TEXT, key TEXT, number INTEGER)"))


INSERT = "INSERT INTO effect (tenant, key, number) VALUES (?, ?, ?)"


async def write(event: Event[Made], tx: Tx) -> None:
    await tx.execute(worded(INSERT), (event.tenant, event.data.key, event.data.number))


async def effects(plant: Service) -> list[tuple[object, object]]:
    return [(key, number) for key, number in await rows(plant, "SELECT key, number FROM effect ORDER BY id")]


async def letters(harness: Harness) -> list[str]:
    return [stored.frame.id for stored in harness.broker.log.topics["plant.thing.dlq"]]


# 30: poison.


@both
async def test_poison_backs_off_with_jitter_and_is_dead_after_seven_runs() -> None:
    plant, ran = service(), []

    @plant.on(Made)
    async def fail(event: Event[Made], tx: Tx) -> None:
        ran.append(app_of(plant).clock.now())
        await write(event, tx)
        raise ValueError("always")

    async with House(plant) as harness:
        await harness.publish(Made(key="k"))
        await harness.settled()
        waits = []
        for longest in (10, 20, 40, 80, 160, 320):
            [held] = await harness.held(plant)
            waits.append((held.next_at - harness.clock.now()) / longest)
            runs = len(ran)
            await harness.advance(held.next_at - harness.clock.now() - 0.001)
            assert len(ran) == runs, "not a moment too early"
            await harness.advance(0.002)
            assert len(ran) == runs + 1
        assert all(0.5 <= wait <= 1 for wait in waits)
        assert len({round(wait, 6) for wait in waits}) > 1
        for _ in range(5):
            await harness.advance(1000)
        [dead] = await harness.held(plant)
        assert (dead.state, dead.attempts, len(ran)) == ("dead", 7, 7)
        assert dead.error == "ValueError: always"
        assert "raise ValueError" in dead.stack
        assert await letters(harness) == [dead.entry.event_id]
        assert await effects(plant) == []


@both
@pytest.mark.parametrize(("on_dead", "after"), [("stop", []), ("skip", [("k", 2)])])
async def test_a_key_stops_behind_its_dead_event_or_skips_it(on_dead: str, after: list[tuple[str, int]]) -> None:
    plant = service()

    @plant.on(Made, policy=Policy(max_attempts=2, on_dead=on_dead))  # type: ignore[arg-type]
    async def handle(event: Event[Made], tx: Tx) -> None:
        await write(event, tx)
        if event.data.number == 1:
            raise ValueError("poison")

    async with House(plant) as harness:
        for number in (1, 2):
            await harness.publish(Made(key="k", number=number))
        await harness.publish(Made(key="other", number=3))
        await harness.settled()
        figures = await harness.advance(11)
        assert await effects(plant) == [("other", 3), *after]
        assert len(await letters(harness)) == 1
        assert [(line.skipped, sum(line.held.values())) for line in figures.lines] == [
            (0, 2) if on_dead == "stop" else (1, 0)
        ]


@both
async def test_an_error_that_cannot_be_said_or_stored_is_held_all_the_same() -> None:
    plant = service()

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    errors = [ValueError("half \udc80 a pair"), ValueError("a NUL \0"), Unspeakable(), ValueError("long " * 100_000)]

    @plant.on(Made, policy=Policy(max_attempts=2))
    async def fail(event: Event[Made], tx: Tx) -> None:
        raise errors[event.data.number]

    async with House(plant) as harness:
        for number in range(len(errors)):
            await harness.publish(Made(key=f"k{number}", number=number))
        await harness.settled()
        await harness.advance(11)
        dead = sorted(await harness.held(plant), key=lambda held: held.entry.key or "")
        assert states(dead) == ["dead"] * 4
        assert "\\udc80" in dead[0].error
        assert "\0" not in dead[1].error
        assert dead[2].error.startswith("Unspeakable: ")
        assert all(len(held.error) < 3_000 and len(held.stack) < 10_000 for held in dead)
        assert len(await letters(harness)) == 4


# 33: hanging. 34: not listening.


class OnFiles(Harness):
    """The harness, with the store in a file instead of in memory."""

    def __init__(self, plant: Service, folder: Path) -> None:
        super().__init__(plant)
        self._folder = folder

    def store_of(self, service: Service) -> str:
        return f"sqlite:///{self._folder / 'plant.db'}?synchronous=NORMAL"


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "file" else None


def running(plant: Service, place: Path | None) -> contextlib.AbstractAsyncContextManager[Harness]:
    return Harness(plant) if place is None else OnFiles(plant, place)


async def test_an_async_handler_that_hangs_is_given_up_and_others_flow(place: Path | None) -> None:
    plant, ran = service(), []

    @plant.on(Made, policy=Policy(deadline=SHORT))
    async def hang(event: Event[Made], tx: Tx) -> None:
        ran.append(event.data.key)
        await write(event, tx)
        if event.data.key == "hangs" and ran.count("hangs") == 1:
            await asyncio.Event().wait()

    async with running(plant, place) as harness:
        for key in ("hangs", "a", "b"):
            await harness.publish(Made(key=key))
        await harness.settled()
        assert await effects(plant) == [("a", 0), ("b", 0)]
        [held] = await harness.held(plant)
        assert held.state == "retrying"
        assert held.error.startswith("DeadlineExceeded")
        await harness.advance(11)
        assert await effects(plant) == [("a", 0), ("b", 0), ("hangs", 0)]


async def test_an_async_handler_that_swallows_its_cancellation_writes_nothing_late(place: Path | None) -> None:
    plant, refused, first = service(), [], [True]
    late = asyncio.Event()

    @plant.on(Made, policy=Policy(deadline=SHORT))
    async def deaf(event: Event[Made], tx: Tx) -> Told | None:
        await write(event, tx)
        if not first:
            return Told(key=event.data.key)
        first.clear()
        connection = tx.connection
        assert isinstance(connection, sqlite3.Connection)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        for attempt in (lambda: connection.execute(INSERT, ("t1", "late", 1)), connection.commit):
            try:
                attempt()
            except StoreError as error:
                refused.append(type(error).__name__)
        try:
            await tx.execute(INSERT, ("t1", "late", 2))
        except StoreError as error:
            refused.append(type(error).__name__)
        try:
            tx.publish(Told(key="late"))
        except StoreError as error:
            refused.append(type(error).__name__)
        late.set()
        return Told(key="late")

    async with running(plant, place) as harness:
        await harness.publish(Made(key="k"))
        await harness.settled()
        async with asyncio.timeout(5):
            await late.wait()
        await harness.advance(11)
        assert await effects(plant) == [("k", 0)]
        assert [told.data.key for told in await harness.published(Told)] == ["k"]
        assert len(refused) == 4
        assert "TransactionClosed" in refused


async def late_thread(plant: Service, place: Path | None, go: threading.Event, ended: threading.Event) -> None:
    """Publish one event whose first run hangs in a thread; then let the thread go on and see that nothing is added."""
    async with running(plant, place) as harness:
        for key in ("hangs", "a"):
            await harness.publish(Made(key=key))
        await harness.settled()
        assert await effects(plant) == [("a", 0)]
        [held] = await harness.held(plant)
        assert held.error.startswith("DeadlineExceeded")
        go.set()
        await eventually(ended.is_set, "the end of the late thread", within=5)
        assert await effects(plant) == [("a", 0)]
        await harness.publish(Made(key="b"))
        await harness.advance(11)
        assert sorted(map(str, await effects(plant))) == ["('a', 0)", "('b', 0)", "('hangs', 0)"]


async def test_a_plain_handler_that_hangs_and_wakes_up_cannot_write_on_its_connection(place: Path | None) -> None:
    plant, refused = service(), []
    go, ended = threading.Event(), threading.Event()

    @plant.on(Made, policy=Policy(deadline=SHORT))
    def hang(event: Event[Made], connection: sqlite3.Connection) -> None:
        cursor = connection.execute(INSERT, (event.tenant, event.data.key, event.data.number))
        if event.data.key != "hangs" or ended.is_set():
            return
        go.wait(10)
        for attempt in (
            lambda: connection.execute(INSERT, ("t1", "late", 1)),
            lambda: cursor.execute(INSERT, ("t1", "late", 2)),
            lambda: connection.executemany(INSERT, [("t1", "late", 3)]),
            connection.commit,
        ):
            try:
                attempt()
            except Exception as error:
                refused.append(error)
        ended.set()

    await late_thread(plant, place, go, ended)
    assert len(refused) == 4


async def test_a_plain_handler_that_hangs_and_wakes_up_cannot_write_on_its_session(place: Path | None) -> None:
    plant, refused = service(), []
    go, ended = threading.Event(), threading.Event()

    @plant.on(Made, policy=Policy(deadline=SHORT))
    def hang(event: Event[Made], session: Session) -> None:
        statement = text("INSERT INTO effect (tenant, key, number) VALUES (:tenant, :key, 0)")
        session.execute(statement, {"tenant": event.tenant, "key": event.data.key})
        if event.data.key != "hangs" or ended.is_set():
            return
        go.wait(10)
        try:
            session.execute(statement, {"tenant": "t1", "key": "late"})
            session.commit()
        except Exception as error:
            refused.append(error)
            raise
        finally:
            ended.set()

    await late_thread(plant, place, go, ended)
    assert len(refused) == 1


async def test_a_plain_handler_that_hangs_inside_a_statement_is_stopped(place: Path | None) -> None:
    plant, first = service(), [True]
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n"
    )
    ended = threading.Event()

    @plant.on(Made, policy=Policy(deadline=SHORT))
    def compute(event: Event[Made], connection: sqlite3.Connection) -> None:
        connection.execute(INSERT, (event.tenant, event.data.key, event.data.number))
        if event.data.key == "hangs" and first:
            first.clear()
            try:
                connection.execute(endless).fetchone()
            finally:
                ended.set()

    async with running(plant, place) as harness:
        for key in ("hangs", "a"):
            await harness.publish(Made(key=key))
        await harness.settled()
        await eventually(ended.is_set, "the interrupt", within=5)
        assert await effects(plant) == [("a", 0)]
        await harness.advance(11)
        assert await effects(plant) == [("a", 0), ("hangs", 0)]


async def test_a_handler_that_is_cancelled_from_inside_has_failed_and_the_worker_lives() -> None:
    plant, ran = service(), []

    @plant.on(Made, policy=Policy(max_attempts=3))
    async def cancelled(event: Event[Made], tx: Tx) -> None:
        ran.append(event.data.key)
        await write(event, tx)
        if event.data.key == "cancelled":
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

    async with Harness(plant) as harness:
        for key in ("cancelled", "a"):
            await harness.publish(Made(key=key))
        await harness.settled()
        for _ in range(3):
            await harness.advance(21)
        await harness.publish(Made(key="b"))
        await harness.settled()
        assert await effects(plant) == [("a", 0), ("b", 0)]
        assert [(held.state, held.attempts) for held in await harness.held(plant)] == [("dead", 3)]
        assert ran.count("cancelled") == 3


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), GeneratorExit()])
async def test_a_plain_handler_may_raise_what_no_future_takes(error: BaseException) -> None:
    plant = service()

    @plant.on(Made, policy=Policy(max_attempts=1))
    def fail(event: Event[Made]) -> None:
        raise error

    async with Harness(plant) as harness:
        await harness.publish(Made(key="k"))
        await harness.settled()
        [held] = await harness.held(plant)
        assert held.state == "dead"
        assert type(error).__name__ in held.error


# Groups and lists.


@both
@pytest.mark.parametrize("many", [False, True], ids=["grouped", "list"])
async def test_a_group_with_one_failing_event_is_redone_and_the_others_are_applied_once(many: bool) -> None:
    plant = service()
    sizes: list[int] = []

    async def one(event: Event[Made], tx: Tx) -> Told:
        await write(event, tx)
        if event.data.number == 13:
            raise ValueError("thirteen")
        return Told(key=event.data.key)

    async def several(events: list[Event[Made]], tx: Tx) -> list[Told]:
        sizes.append(len(events))
        return [await one(event, tx) for event in events]

    plant.on(Made, policy=Policy(grouped=True))(several if many else one)
    harness = House(plant)
    await harness.broker.ensure(app_of(plant).opened.topology())
    await put(harness, *[crafted(Made(key=f"k{n}", number=n), sequence=1) for n in range(30)])
    async with harness:
        await calm(harness)
        assert sorted(int(str(number)) for _, number in await effects(plant)) == [n for n in range(30) if n != 13]
        assert len(await harness.published(Told)) == 29
        assert [(held.state, held.attempts) for held in await harness.held(plant)] == [("retrying", 1)]
        if many:
            assert max(sizes) > 10


@both
async def test_a_list_holds_the_events_of_a_key_in_their_order_and_none_overtakes() -> None:
    plant = service()
    seen: list[list[tuple[str, int]]] = []

    @plant.on(Made)
    async def several(events: list[Event[Made]], tx: Tx) -> None:
        seen.append([(event.data.key, event.data.number) for event in events])
        for event in events:
            await write(event, tx)

    harness = House(plant)
    await harness.broker.ensure(app_of(plant).opened.topology())
    await put(harness, *[crafted(Made(key=f"k{n % 5}", number=n), sequence=n // 5 + 1) for n in range(50)])
    async with harness:
        await calm(harness)
        assert sum(map(len, seen)) == 50
        handed = [one for together in seen for one in together]
        assert all([n for key, n in handed if key == f"k{k}"] == list(range(k, 50, 5)) for k in range(5))
        assert max(map(len, seen)) > 5, "several events of a key came together"
        for k in range(5):
            numbers = [number for key, number in await effects(plant) if key == f"k{k}"]
            assert numbers == list(range(k, 50, 5))


async def test_a_list_holds_events_of_one_tenant_so_that_what_follows_belongs_to_it() -> None:
    plant = service()

    lists: list[tuple[str, list[str]]] = []

    @plant.on(Made)
    async def several(events: list[Event[Made]], tx: Tx) -> list[Told]:
        lists.append((tx.tenant, [event.tenant for event in events]))
        return [Told(key=event.data.key) for event in events]

    harness = Harness(plant)
    await harness.broker.ensure(app_of(plant).opened.topology())
    await put(harness, *[crafted(Made(key=f"of t{n % 3} {n}"), tenant=f"t{n % 3}", sequence=1) for n in range(30)])
    async with harness:
        await calm(harness)
        told = await harness.published(Told)
        assert len(told) == 30
        assert all(event.data.key.startswith(f"of {event.tenant} ") for event in told)
        assert all(set(tenants) == {tenant} for tenant, tenants in lists)
        assert max(len(tenants) for _, tenants in lists) == 10


@both
async def test_copies_inside_one_group_are_one_effect() -> None:
    plant = service()

    @plant.on(Seen)
    async def several(events: list[Event[Seen]], tx: Tx) -> None:
        for event in events:
            await tx.execute(worded(INSERT), (event.tenant, "seen", event.data.number))

    harness = House(plant)
    await harness.broker.ensure(app_of(plant).opened.topology())
    frames = [crafted(Seen(number=n)) for n in range(10)]
    await put(harness, *frames, *frames, *frames)
    async with harness:
        await calm(harness)
        assert sorted(int(str(number)) for _, number in await effects(plant)) == list(range(10))


# Plain functions and what is not theirs to end.


async def test_a_commit_inside_a_plain_handler_is_refused_and_leaves_nothing(place: Path | None) -> None:
    plant = service()

    @plant.on(Made, policy=Policy(max_attempts=1))
    def commit(event: Event[Made], connection: sqlite3.Connection) -> None:
        connection.execute(INSERT, (event.tenant, event.data.key, event.data.number))
        if event.data.key == "method":
            connection.commit()
        if event.data.key == "statement":
            connection.execute("COMMIT")
        if event.data.key == "block":
            with connection:
                pass

    async with running(plant, place) as harness:
        for key in ("method", "statement", "block", "fine"):
            await harness.publish(Made(key=key))
        await harness.settled()
        assert await effects(plant) == [("fine", 0)]
        assert all("not yours to call" in held.error for held in await harness.held(plant))
        assert states(await harness.held(plant)) == ["dead"] * 3


async def test_a_commit_of_a_session_inside_a_handler_does_not_end_the_transaction(place: Path | None) -> None:
    plant = service()

    @plant.on(Made, policy=Policy(max_attempts=1))
    def commit(event: Event[Made], session: Session) -> Iterable[Told]:
        session.execute(
            text("INSERT INTO effect (tenant, key, number) VALUES ('t1', :key, 0)"), {"key": event.data.key}
        )
        session.commit()
        if event.data.key == "fails":
            raise ValueError("after the commit")
        return [Told(key=event.data.key)]

    async with running(plant, place) as harness:
        for key in ("fails", "fine"):
            await harness.publish(Made(key=key))
        await harness.settled()
        assert await effects(plant) == [("fine", 0)]
        assert [told.data.key for told in await harness.published(Told)] == ["fine"]
        assert states(await harness.held(plant)) == ["dead"]


async def test_a_plain_handler_without_a_transaction_runs_and_publishes() -> None:
    plant = service()

    @plant.on(Made)
    def tell(event: Event[Made]) -> Told:
        return Told(key=event.data.key)

    async with Harness(plant) as harness:
        await harness.publish(Made(key="k"))
        await harness.settled()
        assert [told.data.key for told in await harness.published(Told)] == ["k"]


# Signals, and what a handler says.


@both
async def test_a_handler_says_what_should_happen_next() -> None:
    plant, ran = service(), []

    @plant.on(Made, policy=Policy(max_attempts=3))
    async def handle(event: Event[Made], tx: Tx) -> None:
        key = event.data.key
        ran.append(key)
        await write(event, tx)
        if key == "now" and ran.count(key) < 3:
            raise RetryNow("at once")
        if key == "always now":
            raise RetryNow("for ever")
        if key == "later" and ran.count(key) < 2:
            raise RetryLater("in an hour", seconds=3600)
        if key == "scheduled" and ran.count(key) < 2:
            raise RetryLater("as the policy says")
        if key == "reject":
            raise Reject("never")

    async with House(plant) as harness:
        for key in ("now", "always now", "later", "scheduled", "reject"):
            await harness.publish(Made(key=key))
        await harness.settled()
        assert await effects(plant) == [("now", 0)]
        held = {held.entry.key: held for held in await harness.held(plant)}
        assert {key: (h.state, h.attempts) for key, h in held.items()} == {
            "always now": ("dead", 3),
            "later": ("retrying", 1),
            "scheduled": ("retrying", 1),
            "reject": ("dead", 1),
        }
        assert (held["reject"].reason, held["always now"].reason) == ("rejected", "attempts spent")
        await harness.advance(11)
        assert await effects(plant) == [("now", 0), ("scheduled", 0)]
        await harness.advance(3588)
        assert len(await effects(plant)) == 2
        await harness.advance(2)
        assert await effects(plant) == [("now", 0), ("scheduled", 0), ("later", 0)]


@both
async def test_what_a_failed_handler_said_is_never_seen() -> None:
    plant = service()

    @plant.on(Made, policy=Policy(max_attempts=2))
    async def handle(event: Event[Made], tx: Tx) -> list[Told]:
        tx.publish(Told(key="early"))
        tx.publish(Told(key="timer"), after=5, timer=f"t-{event.data.key}")
        if event.data.key == "raises":
            raise ValueError("after publishing")
        return [Told(key="one"), Told(key="")]  # the second has no key: refused while it is being said

    async with House(plant) as harness:
        for key in ("raises", "says nonsense"):
            await harness.publish(Made(key=key))
        await harness.settled()
        for _ in range(3):
            await harness.advance(30)
        assert await harness.published(Told) == []
        assert await app_of(plant).store.timers.pending() == []
        assert states(await harness.held(plant)) == ["dead", "dead"]


async def test_what_a_handler_says_inherits_tenant_correlation_and_cause_also_when_said_later() -> None:
    plant = service()

    @plant.on(Made)
    async def handle(event: Event[Made], tx: Tx) -> tuple[Told, Told]:
        tx.publish(Told(key="later"), after=30)
        return Told(key="one"), Told(key="two")

    async with Harness(plant) as harness:
        cause = await harness.publish(Made(key="k"), tenant="t7", correlation="01JCORRELATION")
        await harness.settled()
        assert [told.data.key for told in await harness.published(Told)] == ["one", "two"]
        await harness.advance(29)
        assert len(await harness.published(Told)) == 2
        await harness.advance(1)
        told = await harness.published(Told)
        assert [event.data.key for event in told] == ["one", "two", "later"]
        assert {(event.tenant, event.correlation, event.causation) for event in told} == {
            ("t7", "01JCORRELATION", cause)
        }
        assert told[2].occurred_at.timestamp() == harness.clock.now()


# What an operator may do.


class Floor:
    """A key with a dead first event and a blocked second, a gap, an unreadable frame, and a key that is fine."""

    def __init__(self) -> None:
        self.plant = service()
        self.broken = {"dead"}

        @self.plant.on(Made, policy=Policy(max_attempts=1))
        async def handle(event: Event[Made], tx: Tx) -> None:
            await write(event, tx)
            if event.data.key in self.broken and event.data.number == 1:
                raise ValueError("broken")

    async def fill(self, harness: Harness) -> None:
        for number in (1, 2, 3):
            await put(harness, crafted(Made(key="dead", number=number), id=f"d{number}", sequence=number))
        await put(harness, crafted(Made(key="gap", number=2), id="g2", sequence=2))
        await calm(harness)

    async def held(self, harness: Harness) -> dict[str, HeldEvent]:
        return {held.entry.event_id: held for held in await harness.held(self.plant)}


@pytest.fixture
async def floor() -> AsyncIterator[tuple[Floor, Harness]]:
    floor = Floor()
    async with Harness(floor.plant) as harness:
        await floor.fill(harness)
        assert {id: held.state for id, held in (await floor.held(harness)).items()} == {
            "d1": "dead",
            "d2": "blocked",
            "d3": "blocked",
            "g2": "gap",
        }
        yield floor, harness


async def test_retry_runs_a_dead_event_with_all_its_attempts(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    held = await place.held(harness)
    await place.plant.held.retry(held["d1"].id)
    harness.clock.advance(1)
    await calm(harness)
    assert (await place.held(harness))["d1"].state == "dead", "it is still broken"
    place.broken.clear()
    await place.plant.held.retry(held["d1"].id)
    harness.clock.advance(1)
    await calm(harness)
    assert await effects(place.plant) == [("dead", 1), ("dead", 2), ("dead", 3)]


@pytest.mark.parametrize(
    ("which", "verb"),
    [("d2", "retry"), ("d2", "skip"), ("d2", "quarantine"), ("g2", "retry"), ("g2", "skip")],
)
async def test_an_event_that_waits_its_turn_cannot_be_moved(
    floor: tuple[Floor, Harness], verb: str, which: str
) -> None:
    place, harness = floor
    before = await place.held(harness)
    with pytest.raises(DeskError, match="waits behind"):
        await getattr(place.plant.held, verb)(before[which].id)
    assert await place.held(harness) == before


async def test_an_event_that_waits_its_turn_cannot_be_edited(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    with pytest.raises(DeskError, match="when its turn has come"):
        await place.plant.held.edit((await place.held(harness))["d2"].id, b"{}", lambda *_: None)


async def test_no_verb_takes_a_number_that_is_not_there(floor: tuple[Floor, Harness]) -> None:
    desk = floor[0].plant.held
    for verb in (desk.retry, desk.skip, desk.quarantine, desk.release, desk.get):
        with pytest.raises(DeskError, match="no held event has the number 999"):
            await verb(999)


@pytest.mark.parametrize("verb", ["skip", "quarantine"])
async def test_skip_and_quarantine_let_the_key_go_on_and_say_when_it_was_done_before(
    floor: tuple[Floor, Harness], verb: str
) -> None:
    place, harness = floor
    held_id = (await place.held(harness))["d1"].id
    await getattr(place.plant.held, verb)(held_id)
    harness.clock.advance(1)
    await calm(harness)
    assert await effects(place.plant) == [("dead", 2), ("dead", 3)]
    state = (await place.held(harness))["d1"].state
    assert state == {"skip": "skipped", "quarantine": "quarantined"}[verb]
    with pytest.raises(DeskError, match=f"is {state} already"):
        await getattr(place.plant.held, verb)(held_id)


@pytest.mark.parametrize("verb", ["skip", "quarantine"])
async def test_an_event_that_its_key_left_behind_runs_again_only_by_force(
    floor: tuple[Floor, Harness], verb: str
) -> None:
    """48."""
    place, harness = floor
    held_id = (await place.held(harness))["d1"].id
    await getattr(place.plant.held, verb)(held_id)
    harness.clock.advance(1)
    await calm(harness)
    place.broken.clear()
    with pytest.raises(DeskError, match=r"went on to number 3, this is number 1: retry it with --force"):
        await place.plant.held.retry(held_id)
    with pytest.raises(DeskError, match="--force"):
        await place.plant.held.edit(held_id, b'{"key":"dead","number":7}', lambda *_: None)
    harness.clock.advance(1)
    await calm(harness)
    assert await effects(place.plant) == [("dead", 2), ("dead", 3)]
    await place.plant.held.retry(held_id, force=True)
    harness.clock.advance(1)
    await calm(harness)
    assert await effects(place.plant) == [("dead", 2), ("dead", 3), ("dead", 1)]
    assert "d1" not in await place.held(harness)
    await put(harness, crafted(Made(key="dead", number=4), id="d4", sequence=4))
    await calm(harness)
    assert (await effects(place.plant))[-1] == ("dead", 4), "the key is as it was"


async def test_edit_replaces_the_payload_keeps_id_and_place_and_runs_it(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    held_id = (await place.held(harness))["d1"].id
    asked: list[tuple[str, bytes]] = []
    await place.plant.held.edit(held_id, b'{"key":"dead","number":77}', lambda *given: asked.append(given))
    harness.clock.advance(1)
    await calm(harness)
    assert asked == [("plant.thing.made.v1", b'{"key":"dead","number":77}')]
    assert await effects(place.plant) == [("dead", 77), ("dead", 2), ("dead", 3)]
    await put(harness, crafted(Made(key="dead", number=1), id="d1", sequence=1))
    await calm(harness)
    assert len(await effects(place.plant)) == 3, "the original is a duplicate now"


async def test_an_edit_that_does_not_fit_changes_nothing(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    before = await place.held(harness)

    def check(subject: str, data: bytes) -> None:
        event_type_of(Made).payload.decode(data)

    with pytest.raises(ValueError, match="number"):
        await place.plant.held.edit(before["d1"].id, b'{"key":"dead","number":"many"}', check)
    assert await place.held(harness) == before


async def test_release_runs_a_dead_first_event_or_gives_a_missing_number_up(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    held = await place.held(harness)
    place.broken.clear()
    await place.plant.held.release(held["d3"].id)
    await place.plant.held.release(held["g2"].id)
    harness.clock.advance(1)
    await calm(harness)
    assert [e for e in await effects(place.plant) if e[0] == "dead"] == [("dead", 1), ("dead", 2), ("dead", 3)]
    assert ("gap", 2) in await effects(place.plant)
    assert await place.held(harness) == {}


async def test_an_unreadable_event_stays_unreadable_whatever_is_asked(floor: tuple[Floor, Harness]) -> None:
    place, harness = floor
    broken = crafted(Made(key="x"), id="bad", sequence=1)
    await put(harness, type(broken)(topic=broken.topic, id="bad", body=b"\xff", headers=broken.headers))
    await calm(harness)
    held_id = (await place.held(harness))["bad"].id
    with pytest.raises(DecodeError):
        await place.plant.held.edit(held_id, b"{}", lambda *_: None)
    await place.plant.held.retry(held_id)
    harness.clock.advance(1)
    await calm(harness)
    held = (await place.held(harness))["bad"]
    assert (held.state, held.reason) == ("dead", "contract")
    await place.plant.held.skip(held_id)
    assert (await place.held(harness))["bad"].state == "skipped"


async def test_dead_events_are_told_to_the_log_once_each(caplog: pytest.LogCaptureFixture) -> None:
    floor = Floor()
    with caplog.at_level(logging.ERROR, "posthouse"):
        async with Harness(floor.plant) as harness:
            await floor.fill(harness)
    assert len([record for record in caplog.records if "is dead" in record.message]) == 1

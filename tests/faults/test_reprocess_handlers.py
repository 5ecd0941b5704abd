"""What a replay does to handlers of each kind, to what is held, and to who may not."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from posthouse import (
    App,
    Event,
    Model,
    Payload,
    Policy,
    Rights,
    Saga,
    Service,
    Settings,
    Turn,
    Tx,
    on,
    reprocessing,
    starts,
)
from posthouse.errors import ConfigurationError
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.replay import Choice
from posthouse.processes import Aggregate
from posthouse.receiving.typed import OnReplay
from posthouse.store import HeldFilter, Scope
from posthouse.store.jobs import Job
from posthouse.trust.rights import Asked, signed_in
from posthouse.watch.status import drained
from tests.kit.waiting import eventually

_ANY, _DEAD = HeldFilter(), HeldFilter(state="dead")


class Placed(Payload):
    key: str
    number: int


class Paid(Payload):
    key: str
    number: int


class Desk:
    """One service that says and hears; what its handler does is up to the test."""

    def __init__(self, place: Path, rights: Rights | None = None, **more: Any) -> None:
        self.place = place
        self.shop = Service("shop", namespace="t")
        self.placed = self.shop.event("order.placed.v1", key="key")(Placed)
        self.paid = self.shop.event("payment.taken.v1", key="key")(Paid)
        self.seen = Counter[tuple[str, int, bool, str]]()
        self.app = App(
            self.shop, store=f"sqlite:///{place}/shop.db", broker=f"embedded:///{place}/log.db", rights=rights, **more
        )
        self.shop.setup(_tables)

    def see(self, event: Event[Placed] | Event[Placed | Paid], what: str = "") -> None:
        self.seen[event.data.key, event.data.number, event.replayed, what] += 1

    @contextlib.asynccontextmanager
    async def running(self, *said: object, until: Callable[[], object]) -> AsyncIterator[None]:
        async with self.shop.running():
            for payload in said:
                async with self.shop.transaction(tenant="t1") as tx:
                    tx.publish(payload)
            await eventually(until)
            yield

    async def begin(self, **of: object) -> Job:
        choice = Choice(consumer="shop", **{"reprocess": True, **of})  # type: ignore[arg-type]
        plan = await reprocessing.planned(self.shop, choice)
        return await reprocessing.begin(self.shop, choice, total=plan.events, rate=0.0, by="ada", why="ticket 7")

    async def replay(self, **of: object) -> Job:
        job = await self.begin(**of)
        return await reprocessing.run(self.shop, job.id, look=0.02)


async def _tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS applied (key TEXT, number INTEGER)")


@pytest.mark.parametrize(
    ("says", "called", "answers"), [("apply", 2, ["ok", "ok"]), ("without_calls", 1, ["ok", None]), ("skip", 1, ["ok"])]
)
async def test_a_handler_that_calls_outside_says_what_a_replay_does(
    tmp_path: Path, says: OnReplay, called: int, answers: list[str | None]
) -> None:
    desk, calls, told = Desk(tmp_path), list[str](), list[object]()

    def charge(event: Event[Placed]) -> str:
        calls.append(event.data.key)
        return "ok"

    @desk.shop.on(Placed, calling=charge, replay=says)
    async def bill(event: Event[Placed], tx: Tx, answer: str | None) -> None:
        told.append(answer)

    async with desk.running(desk.placed(key="a", number=1), until=lambda: told):
        job = await desk.replay()
        assert job.state == "done"
        assert (len(calls), told) == (called, answers)
        assert job.done == (0 if says == "skip" else 1)


async def test_a_handler_that_calls_outside_and_says_nothing_is_refused(tmp_path: Path) -> None:
    desk, told = Desk(tmp_path), list[object]()

    @desk.shop.on(Placed, calling=lambda event: "ok")
    async def bill(event: Event[Placed], tx: Tx, answer: str) -> None:
        told.append(answer)

    @desk.shop.on(Paid)
    async def book(event: Event[Paid]) -> None:
        told.append(event)

    async with desk.running(desk.placed(key="a", number=1), desk.paid(key="a", number=1), until=lambda: len(told) == 2):
        with pytest.raises(ConfigurationError, match=r'bill calls the outside.*replay="without_calls"'):
            await desk.begin()
        job = await desk.replay(type="t.shop.payment.taken.v1")
        assert (job.state, job.done, len(told)) == ("done", 1, 3)
        assert (await desk.replay(reprocess=False)).done == 0


async def test_calls_that_are_not_there_cannot_be_left_out() -> None:
    shop = Service("shop")
    placed = shop.event("order.placed.v1")(Placed)
    with pytest.raises(ConfigurationError, match="calls nobody"):

        @shop.on(placed, replay="without_calls")
        async def bill(event: Event[Placed]) -> None: ...


async def test_events_in_no_order_and_of_two_topics_are_all_applied_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    @desk.shop.on(Placed, Paid, policy=Policy(order="none"))
    async def note(event: Event[Placed | Paid]) -> None:
        desk.see(event, type(event.data).__name__)

    said = [kind(key="a", number=n) for n in range(5) for kind in (desk.placed, desk.paid)]
    async with desk.running(*said, until=lambda: desk.seen.total() == 10):
        job = await desk.replay()
        assert (job.state, job.done, job.total) == ("done", 10, 10)
        assert set(desk.seen.values()) == {1}
        assert desk.seen.total() == 20


async def test_one_that_fails_in_no_order_keeps_nobody_waiting(tmp_path: Path) -> None:
    desk, fails = Desk(tmp_path), set[int]()

    @desk.shop.on(Placed, policy=Policy(order="none", max_attempts=2, first_delay=0.01))
    async def note(event: Event[Placed]) -> None:
        if event.data.number in fails:
            raise ValueError("no money")
        desk.see(event)

    said = [desk.placed(key="a", number=n) for n in range(4)]
    async with desk.running(*said, until=lambda: desk.seen.total() == 4):
        fails.update((0, 2))
        job = await desk.replay()
        assert (job.state, job.done) == ("paused", 2)
        assert "2 of them failed" in job.note
        fails.clear()
        async with desk.app.store.begin() as tx:
            await desk.app.store.jobs.decide(tx, job.id, "running")
        job = await reprocessing.run(desk.shop, job.id, look=0.02)
        assert (job.state, job.done) == ("done", 4)
        assert set(desk.seen.values()) == {1}


@pytest.mark.parametrize("on_dead", ["stop", "skip"])
async def test_what_is_held_stays_held_and_goes_on_behind_what_is_applied_again(tmp_path: Path, on_dead: str) -> None:
    desk, fails = Desk(tmp_path), {2}

    @desk.shop.on(Placed, policy=Policy(max_attempts=1, on_dead=on_dead))  # type: ignore[arg-type]
    async def note(event: Event[Placed]) -> None:
        if event.data.number in fails:
            raise ValueError("no money")
        desk.see(event)

    async def held() -> int:
        return len(await desk.app.store.held.find(_ANY))

    waiting = 2 if on_dead == "stop" else 1
    applied = [1] if on_dead == "stop" else [1, 3]
    async with desk.running(*(desk.placed(key="a", number=n) for n in (1, 2, 3)), until=lambda: desk.seen.total()):
        async with asyncio.timeout(20):
            while await held() != waiting or desk.seen.total() != len(applied):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        plan = await reprocessing.planned(desk.shop, Choice(consumer="shop", reprocess=True))
        assert (plan.events, plan.left_out) == (len(applied), {"held": waiting})
        job = await desk.replay()
        assert (job.state, job.done) == ("done", len(applied))
        assert sorted(n for (_, n, again, _) in desk.seen if again) == applied
        assert await held() == waiting
        if on_dead == "stop":
            fails.clear()
            [dead] = [one async for one in desk.shop.held.find(_DEAD)]
            await desk.shop.held.retry(dead.id, by="ada", why="mended")
            await eventually(lambda: ("a", 3, False, "") in desk.seen)


async def test_a_consumer_is_replayed_by_one_job_at_a_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    @desk.shop.on(Placed)
    async def note(event: Event[Placed]) -> None:
        desk.see(event)

    async with desk.running(desk.placed(key="a", number=1), until=lambda: desk.seen):
        job = await desk.begin()
        with pytest.raises(ConfigurationError, match=f"replayed by job {job.id}"):
            await desk.begin()
        await reprocessing.run(desk.shop, job.id, look=0.02)
        assert (await desk.replay()).state == "done"
        with pytest.raises(ConfigurationError, match="no consumer"):
            reprocessing.consumer_of(desk.shop, "billing")


async def test_sagas_and_read_models_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    @desk.shop.saga("checkout", correlate="key")
    class Checkout(Saga):
        key: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @on(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            turn.complete()

    totals = desk.shop.projection("totals")

    @totals.on(Placed)
    async def add(event: Event[Placed], model: Model) -> None: ...

    [of] = desk.shop.declared.saga_types.values()
    with pytest.raises(ConfigurationError, match="is a saga"):
        await reprocessing.planned(desk.shop, Choice(consumer=of.consumer, reprocess=True))
    with pytest.raises(ConfigurationError, match="projection rebuild"):
        reprocessing.consumer_of(desk.shop, "totals")
    await desk.shop.aclose()


async def test_a_replay_ends_with_its_grant_and_goes_on_with_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Rights(grants=True))

    @desk.shop.on(Placed)
    async def note(event: Event[Placed]) -> None:
        desk.see(event)

    async def granted(most: int) -> None:
        grants = desk.app.grants
        asked = Asked(service="shop", scope=Scope(consumer="shop"), minutes=30, most=most, rate=1000.0)
        with signed_in(True):
            grant = await grants.request(asked, by="ada", why="ticket 7")
            await grants.approve(grant.id, by="grace")

    said = [desk.placed(key=f"k{n % 3}", number=n) for n in range(9)]
    async with desk.running(*said, until=lambda: desk.seen.total() == 9):
        with signed_in(True):
            job = await desk.replay()
            assert (job.state, job.done) == ("paused", 0)
            assert "no grant to replay" in job.note
            await granted(4)
            job = await resumed(desk, job)
            assert (job.state, job.done) == ("paused", 4)
            await granted(100)
            job = await resumed(desk, job)
            assert (job.state, job.done) == ("done", 9)
        assert set(desk.seen.values()) == {1}
        assert desk.seen.total() == 18


async def resumed(desk: Desk, job: Job) -> Job:
    async with desk.app.store.begin() as tx:
        await desk.app.store.jobs.decide(tx, job.id, "running")
    return await reprocessing.run(desk.shop, job.id, look=0.02)


async def test_the_outbox_has_the_events_where_no_log_is_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    @desk.shop.on(Placed)
    async def note(event: Event[Placed]) -> None:
        desk.see(event)

    async with desk.running(*(desk.placed(key="a", number=n) for n in range(3)), until=lambda: desk.seen.total() == 3):
        job = await desk.replay(source="outbox")
        assert (job.state, job.done) == ("done", 3)
        assert [n for (_, n, again, _) in desk.seen if again] == [0, 1, 2]


async def test_what_the_log_has_lost_comes_from_the_archive(tmp_path: Path) -> None:
    settings = Settings(archive=ArchiveSettings(every=0.2))
    desk = Desk(tmp_path, archive=f"file://{tmp_path}/archive", settings=settings)

    @desk.shop.on(Placed)
    async def note(event: Event[Placed], tx: Tx) -> Paid:
        desk.see(event)
        return desk.paid(key=event.data.key, number=event.data.number)

    async def archived() -> int:
        reader = desk.app.archive
        assert reader is not None
        return sum(reach.events for reach in (await reader.reach()).values())

    said = [desk.placed(key=f"k{n % 2}", number=n) for n in range(6)]
    async with desk.running(*said, until=lambda: desk.seen.total() == 6):
        async with asyncio.timeout(60):
            while await archived() < 12:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    for ending in ("", "-wal", "-shm"):
        (tmp_path / f"log.db{ending}").unlink(missing_ok=True)
    async with desk.running(desk.placed(key="k0", number=6), until=lambda: desk.seen.total() == 7):
        assert (await reprocessing.planned(desk.shop, Choice(consumer="shop", reprocess=True))).events == 1
        job = await desk.replay(source="archive")
        assert (job.state, job.done, job.total) == ("done", 7, 7)
        assert [n for key, n, again, _ in desk.seen if again and key == "k0"] == [0, 2, 4, 6]
        assert [n for key, n, again, _ in desk.seen if again and key == "k1"] == [1, 3, 5]
        counts = await desk.app.store.counts()
        assert counts.committed["t.shop.payment"] == 7


@pytest.mark.parametrize("beside", [False, True])
async def test_a_stream_has_the_events_where_its_versions_are_the_numbers_of_its_key(
    tmp_path: Path, beside: bool
) -> None:
    desk = Desk(tmp_path)
    order: Aggregate[int, Placed] = desk.shop.aggregate(
        "order", events=[desk.placed], initial=int, evolve=lambda state, event: state
    )

    @desk.shop.on(Placed)
    async def note(event: Event[Placed]) -> None:
        desk.see(event)

    async with desk.running(until=lambda: True):
        if beside:  # somebody else speaks under the key
            async with desk.shop.transaction(tenant="t1") as tx:
                tx.publish(desk.placed(key="a", number=9))
        for number in (1, 2, 3):
            async with desk.shop.transaction(tenant="t1") as tx:
                await order.append(tx, "a", [desk.placed(key="a", number=number)], expected="any")
        await eventually(lambda: desk.seen.total() == 3 + beside)
        if beside:
            with pytest.raises(ConfigurationError, match=r"is at version 3, and its key in t.shop.order at number 4"):
                await desk.begin(source="stream")
        else:
            job = await desk.replay(source="stream")
            assert (job.state, job.done, job.total) == ("done", 3, 3)
            assert [n for _, n, again, _ in desk.seen if again] == [1, 2, 3]


async def test_a_fact_in_two_versions_is_applied_again_once(tmp_path: Path) -> None:
    shop, seen = Service("shop"), list[tuple[str, bool]]()
    App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker=f"embedded:///{tmp_path}/log.db")
    old, new = shop.event("order.placed.v1", key="key")(Placed), shop.event("order.placed.v2", key="key")(PlacedNow)
    shop.downcast(new, to=old)(lambda now: Placed(key=now.key, number=now.number))
    shop.upcast(old, to=new)(lambda before: PlacedNow(key=before.key, number=before.number, channel=""))

    @shop.on(new)
    async def note(event: Event[PlacedNow], tx: Tx) -> None:
        seen.append((event.type, event.replayed))

    async with shop.running():
        for number in (1, 2):
            async with shop.transaction(tenant="t1") as tx:
                tx.publish(new(key="a", number=number, channel="web"))
        await eventually(lambda: len(seen) == 2)
        assert (await drained(shop)).verdict == "adds up"
        choice = Choice(consumer="shop", reprocess=True)
        plan = await reprocessing.planned(shop, choice)
        assert (plan.events, plan.left_out) == (2, {"another version": 2})
        job = await reprocessing.begin(shop, choice, total=2, rate=0.0, by="ada", why="ticket 7")
        assert (await reprocessing.run(shop, job.id, look=0.02)).done == 2
        assert seen[2:] == [("shop.order.placed.v2", True)] * 2


class PlacedNow(Payload):
    key: str
    number: int
    channel: str

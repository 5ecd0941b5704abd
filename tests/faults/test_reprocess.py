"""A consumer had a bug. Its events are applied again, to it alone: per key in order, each once, whoever dies in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Policy, Service, Tx, reprocessing
from posthouse.app import app_of
from posthouse.broker import Delivery
from posthouse.errors import ConfigurationError
from posthouse.history.replay import Choice, LogSource
from posthouse.store.jobs import Job
from posthouse.watch.status import Status, drained
from tests.kit.waiting import eventually


class Shop:
    """A producer, a consumer with a bug that keeps the order of keys, one beside it, and one that hears what the first says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.release = "wrong"
        self.orders, self.billing, self.stock, self.mail = self.services = [
            Service(name, namespace="shop") for name in ("orders", "billing", "stock", "mail")
        ]
        for service in self.services:
            App(
                service,
                store=f"sqlite:///{place}/{service.name}.db?synchronous=NORMAL",
                broker=f"embedded:///{place}/log.db?synchronous=NORMAL&partitions=2",
            )
            service.setup(_tables)

        @self.orders.event("order.changed.v1", key="key")
        class Changed(Payload):
            key: str
            number: int

        @self.billing.event("invoice.written.v1", key="key")
        class Written(Payload):
            key: str
            number: int

        self.changed = Changed
        self.numbers: defaultdict[str, int] = defaultdict(int)
        self.fails: set[tuple[str, int]] = set()

        @self.billing.on(Changed, publishes=[Written], policy=Policy(max_attempts=2, first_delay=0.05))
        async def bill(event: Event[Changed], tx: Tx) -> None:
            if (event.data.key, event.data.number) in self.fails:
                raise ValueError("cannot be billed")
            assert event.replayed == tx.replayed
            await self.note(tx, event)
            tx.publish(Written(key=event.data.key, number=event.data.number))

        @self.stock.on(Changed)
        async def count(event: Event[Changed], tx: Tx) -> None:
            await self.note(tx, event)

        @self.mail.on(Written)
        async def send(event: Event[Written], tx: Tx) -> None:
            await self.note(tx, event)

        self.written = Written

    async def note(self, tx: Tx, event: Event[object]) -> None:
        values = (event.data.key, event.data.number, self.release, event.replayed)  # type: ignore[attr-defined]
        await tx.execute("INSERT INTO applied VALUES (?, ?, ?, ?)", values)

    async def say(self, *keys: str, tenant: str = "t1") -> None:
        for key in keys:
            self.numbers[key] += 1
            async with self.orders.transaction(tenant=tenant) as tx:
                tx.publish(self.changed(key=key, number=self.numbers[key]))

    @contextlib.asynccontextmanager
    async def running(self, *services: Service) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for service in services or self.services:
                await stack.enter_async_context(service.running())
            yield
        for service in self.services:
            await service.aclose()

    async def at_rest(self) -> Status:
        return await self.at_rest_of(*self.services)

    async def at_rest_of(self, *services: Service) -> Status:
        """Nothing is on its way between these, and nothing is held."""
        async with asyncio.timeout(30):
            while True:
                figures = await drained(*services)
                if figures.verdict == "adds up" and not any(line.held for line in figures.lines):
                    return figures
                await asyncio.sleep(0.02)

    def applied(self, service: Service, release: str | None = None) -> list[tuple[str, int]]:
        with contextlib.closing(sqlite3.connect(self.place / f"{service.name}.db")) as connection:
            return connection.execute(
                "SELECT key, number FROM applied WHERE ? IN (release, '') ORDER BY rowid", (release or "",)
            ).fetchall()

    def choice(self, **of: object) -> Choice:
        return Choice(consumer="billing", **{"reprocess": True, **of})  # type: ignore[arg-type]

    async def begun(self, **of: object) -> Job:
        choice = self.choice(**of)
        plan = await reprocessing.planned(self.billing, choice)
        return await reprocessing.begin(
            self.billing, choice, total=plan.events, rate=0.0, by="ada", why="the totals were wrong"
        )

    async def replayed(self, **of: object) -> Job:
        job = await self.begun(**of)
        return await reprocessing.run(self.billing, job.id, look=0.02)


class Shuffled(LogSource):
    """A log that has everything twice, in any order."""

    def __init__(self, service: Service, seed: int) -> None:
        super().__init__(app_of(service).broker)
        self._seed = seed

    async def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        found = [delivery async for delivery in super().events(topics, since)] * 2
        random.Random(self._seed).shuffle(found)
        for delivery in found:
            yield delivery


async def _tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS applied (key TEXT, number INTEGER, release TEXT, replayed BOOLEAN)")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def in_order(applied: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in applied:
        found[key].append(number)
    return dict(found)


async def test_after_a_bug_events_are_applied_again_and_nobody_else_sees_anything(shop: Shop) -> None:
    async with shop.running():
        await shop.say("a", "b", "a", "b", "c", "a")
        await shop.at_rest()
        others = shop.applied(shop.stock), shop.applied(shop.mail)
        shop.release = "mended"
        job = await shop.replayed()
        assert (job.state, job.done, job.total) == ("done", 6, 6), job
        await shop.say("a", "c")
        await shop.at_rest()
        assert in_order(shop.applied(shop.billing, "mended")) == {"a": [1, 2, 3, 4], "b": [1, 2], "c": [1, 2]}
        assert shop.applied(shop.stock)[: len(others[0])] == others[0]
        assert in_order(shop.applied(shop.stock)) == {"a": [1, 2, 3, 4], "b": [1, 2], "c": [1, 2]}
        assert in_order(shop.applied(shop.mail)) == {"a": [1, 2, 3, 4], "b": [1, 2], "c": [1, 2]}


async def test_without_reprocess_nothing_is_applied_that_was(shop: Shop) -> None:
    async with shop.running():
        await shop.say("a", "b", "a")
        await shop.at_rest()
        plan = await reprocessing.planned(shop.billing, shop.choice(reprocess=False))
        assert (plan.events, plan.left_out) == (0, {"applied": 3})
        job = await shop.replayed(reprocess=False)
        assert (job.state, job.done) == ("done", 0)
        assert len(shop.applied(shop.billing)) == 3


async def test_live_events_of_a_key_wait_behind_it_and_other_keys_flow(shop: Shop) -> None:
    async with shop.running():
        await shop.say(*"aaa")
        await shop.at_rest()
        shop.release = "mended"
        shop.fails = {("a", 2)}
        job = await shop.replayed()
        assert (job.state, job.done) == ("paused", 1)
        assert "cannot be billed" in job.note
        await shop.say("a", "b", "a")
        await eventually(lambda: ("b", 1) in shop.applied(shop.billing, "mended"))
        await eventually(lambda: len(shop.applied(shop.stock)) == 6)
        await asyncio.sleep(0.3)  # nothing more may happen
        assert in_order(shop.applied(shop.billing, "mended")) == {"a": [1], "b": [1]}
        shop.fails.clear()
        await decided(shop, job, "running")
        job = await reprocessing.run(shop.billing, job.id, look=0.02)
        assert (job.state, job.done, job.total) == ("done", 3, 3)
        await shop.at_rest()
        assert in_order(shop.applied(shop.billing, "mended")) == {"a": [1, 2, 3, 4, 5], "b": [1]}


async def test_a_cancel_leaves_each_key_as_it_was_applied_before_and_lets_it_go_on(shop: Shop) -> None:
    async with shop.running():
        await shop.say(*"aaab")
        await shop.at_rest()
        shop.release, shop.fails = "mended", {("a", 2)}
        job = await shop.replayed()
        await shop.say("a")
        await decided(shop, job, "cancelled")
        await shop.at_rest()
        assert in_order(shop.applied(shop.billing, "mended")) == {"a": [1, 4], "b": [1]}
        assert await app_of(shop.billing).store.replays.standing(job.id) is None


async def decided(shop: Shop, job: Job, state: str) -> None:
    store = app_of(shop.billing).store
    async with store.begin() as tx:
        assert await store.jobs.decide(tx, job.id, state)  # type: ignore[arg-type]


async def test_a_key_whose_numbers_lie_out_of_order_in_the_log_loses_none(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that was sent again in part has a key's numbers in any order, and some twice."""
    async with shop.running():
        await shop.say(*"aaaaabb")
        await shop.at_rest()
        for seed in range(5):
            shop.release = f"mended {seed}"
            monkeypatch.setattr(reprocessing, "_source", lambda service, choice, seed=seed: Shuffled(service, seed))
            job = await shop.replayed()
            assert (job.state, job.done, job.total) == ("done", 7, 7)
            assert in_order(shop.applied(shop.billing, shop.release)) == {"a": [1, 2, 3, 4, 5], "b": [1, 2]}


async def test_a_range_is_one_of_time_tenant_type_and_key(shop: Shop) -> None:
    async with shop.running():
        await shop.say("a", "b")
        await asyncio.sleep(0.01)  # ids tell milliseconds
        middle = time.time()
        await asyncio.sleep(0.01)
        await shop.say("a", "b", tenant="t2")  # keys of another tenant begin with 1
        await shop.at_rest()
        shop.release = "mended"
        assert (await reprocessing.planned(shop.billing, shop.choice(since=middle))).events == 2
        assert (await reprocessing.planned(shop.billing, shop.choice(until=middle, key="a"))).events == 1
        plan = await reprocessing.planned(shop.billing, shop.choice(tenant="t2"))
        assert [(part.tenant, part.again, part.missing, part.keys) for part in plan.parts] == [("t2", 2, 0, 2)]
        job = await shop.replayed(tenant="t2", type="shop.orders.order.changed.v1")
        assert job.done == 2
        with pytest.raises(ConfigurationError, match="no handler"):
            await shop.begun(type="shop.orders.order.chnged.v1")


async def test_what_a_consumer_never_got_is_applied_in_its_place(shop: Shop) -> None:
    """Its group was moved ahead by mistake: the numbers in between never came."""
    async with shop.running(shop.orders, shop.stock):
        await shop.say(*"aab")
        await eventually(lambda: len(shop.applied(shop.stock)) == 3)
    async with shop.running(shop.orders, shop.stock):
        await app_of(shop.billing).opened.prepare()
        await app_of(shop.billing).broker.seek("billing", "shop.orders.order", time=time.time() + 60)
    async with shop.running():
        await shop.say("a")
        await eventually(lambda: len(shop.applied(shop.stock)) == 4)
        assert shop.applied(shop.billing) == []
        plan = await reprocessing.planned(shop.billing, shop.choice(reprocess=False))
        assert sum(part.missing for part in plan.parts) == plan.events >= 3
        job = await shop.replayed(reprocess=False)
        assert job.state == "done"
        await eventually(lambda: in_order(shop.applied(shop.billing)) == {"a": [1, 2, 3], "b": [1]})

"""Two releases that run side by side: the later one runs the saga, and the earlier one stands aside, and takes over again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Saga, Service, Turn, deadline, starts, step
from posthouse.app import app_of
from posthouse.store.sagas import SagaFilter
from posthouse.testing import rehost
from posthouse.watch.status import drained
from tests.kit.waiting import eventually

OUTSIDE = Service("till")


@OUTSIDE.event("order.paid.v1", key="order_id")
class Paid(Payload):
    order_id: str


@OUTSIDE.event("order.insured.v1", key="order_id")
class Insured(Payload):
    order_id: str


class Early(Saga):
    order_id: str
    paid_for: bool = False

    @starts
    def begin(self, turn: Turn) -> None: ...

    @step(Paid)
    def paid(self, event: Event[Paid], turn: Turn) -> None:
        self.paid_for = True


class Later(Early):
    """Takes an event of the same topic that the one before would pass over."""

    @step(Insured)
    def insured(self, event: Event[Insured], turn: Turn) -> None: ...


class Careful(Early):
    """Has a deadline that is never set: whatever it leaves, the one before can go on."""

    @deadline(60.0)
    def slow(self, turn: Turn) -> None: ...


class Shop:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = f"embedded:///{folder}/log.db"
        self._outside = Service("till")
        App(self._outside, store=f"sqlite:///{folder}/till.db", broker=self._broker)

    def release(self, cls: type[Saga]) -> Service:
        service = Service("shop")
        App(service, store=f"sqlite:///{self._folder}/store.db", broker=self._broker)
        service.saga("order", correlate="order_id")(cls)
        return service

    async def say(self, payload: object) -> None:
        app = app_of(self._outside)
        rehost(OUTSIDE, store=app.store, broker=app.broker, clock=app.clock)
        async with OUTSIDE.transaction("t1") as tx:
            tx.publish(payload)
        async with self._outside.running():
            await drained(self._outside)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    yield Shop(tmp_path)
    await OUTSIDE.aclose()


async def done(service: Service) -> tuple[str, ...]:
    (row,) = await app_of(service).store.sagas.find(SagaFilter())
    return row.steps


async def test_the_later_release_takes_what_only_it_knows_while_the_earlier_runs(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "posthouse.sagas")
    earlier, later = shop.release(Early), shop.release(Later)
    async with earlier.running():
        async with earlier.transaction("t1") as tx:
            await earlier.start_saga(tx, Early(order_id="7"))
        async with later.running():
            await shop.say(Insured(order_id="7"))
            await eventually(lambda: _is_done(earlier, "begin", "insured"))
        assert "shop.order is left to a later release, which runs beside this one" in caplog.messages
        # The step that the earlier one does not know is done: it lets the saga be, and nothing is passed over.
        await eventually(lambda: "is left alone until a release runs that can go on" in caplog.text)
        await shop.say(Paid(order_id="7"))
        async with later.running():
            await eventually(lambda: _is_done(earlier, "begin", "insured", "paid"))


async def test_the_earlier_release_takes_over_again_where_it_can(shop: Shop) -> None:
    earlier, later = shop.release(Early), shop.release(Careful)
    async with earlier.running():
        async with later.running(), later.transaction("t1") as tx:
            await later.start_saga(tx, Careful(order_id="7"))
        await shop.say(Paid(order_id="7"))
        await eventually(lambda: _is_done(earlier, "begin", "paid"))


async def test_an_earlier_release_may_start_beside_a_later_one_and_stands_aside(shop: Shop) -> None:
    """Also where the sagas of the later one would be refused: they are not its own to run."""
    earlier, later = shop.release(Early), shop.release(Later)
    async with earlier.running():
        pass
    async with later.running():
        async with later.transaction("t1") as tx:
            await later.start_saga(tx, Later(order_id="7"))
        await shop.say(Insured(order_id="7"))
        await eventually(lambda: _is_done(later, "begin", "insured"))
        async with earlier.running():
            workers = await app_of(earlier).store.workers.read()
            assert sorted(list(one.aside) for one in workers if not one.stopped) == [[], ["shop.order"]]


async def test_two_processes_of_one_release_run_it_together(shop: Shop) -> None:
    one, other = shop.release(Early), shop.release(Early)
    async with one.running(), other.running():
        workers = await app_of(one).store.workers.read()
        assert [list(worker.aside) for worker in workers] == [[], []]


async def _is_done(service: Service, *steps: str) -> bool:
    return await done(service) == steps

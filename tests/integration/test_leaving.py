"""A block that is left while another task still works in it: what was given an id is said, and the rest is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Service, Tx, drained
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError, TransactionClosed
from posthouse.processes import Aggregate, Saga, Turn, on, starts
from posthouse.store.sagas import SagaFilter


class Placed(Payload):
    order_id: str


class Noted(Payload):
    order_id: str


class Shop:
    """A service whose handler leaves a task behind, as its blocks do here."""

    def __init__(self, store: str) -> None:
        self.service = shop = Service("shop")
        App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
        shop.event("order.placed.v1", key="order_id")(Placed)
        shop.event("order.noted.v1", key="order_id")(Noted)
        self.given: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

        @shop.on(Placed)
        async def placed(event: Event[Placed], tx: Tx) -> Noted:
            self.leave_behind(tx)
            return Noted(order_id=event.data.order_id)

        @shop.saga("order", correlate="order_id")
        class Order(Saga):
            order_id: str

            @starts
            async def begin(self, turn: Turn) -> None:
                await turn.execute("SELECT 1")
                turn.publish(Noted(order_id=self.order_id))

            @on(Noted)
            def noted(self, event: Event[Noted], turn: Turn) -> None:
                turn.complete()

        self.order: Callable[..., Saga] = Order
        self.accounts: Aggregate[int, Placed] = shop.aggregate(
            "order", initial=int, evolve=lambda n, placed: n + 1, events=[Placed]
        )

    def leave_behind(self, tx: Tx, times: int = 10_000) -> None:
        for _ in range(5):  # each is a statement of its own when the block ends
            self.given.append(tx.publish(Noted(order_id="o"), after=600.0))
        self.tasks.append(asyncio.create_task(self._go_on(tx, times)))

    async def _go_on(self, tx: Tx, times: int) -> None:
        """Say things, at once and later."""
        with suppress(TransactionClosed):
            for _ in range(times):
                self.given.append(tx.publish(Noted(order_id="o")))
                self.given.append(tx.publish(Noted(order_id="o"), after=600.0))
                await asyncio.sleep(0)

    async def said(self) -> set[str]:
        store = app_of(self.service).store
        rows = await store.outbox.kept(0, 10_000)
        return {row.event_id for row in [*rows, *(timer.row for timer in await store.timers.pending(limit=10_000))]}


@pytest.fixture(params=["postgresql", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("store_url"))


@pytest_asyncio.fixture
async def shop(store: str) -> AsyncIterator[Shop]:
    shop = Shop(store)
    await app_of(shop.service).store.upgrade()
    yield shop
    await shop.service.aclose()


async def test_whatever_was_given_an_id_while_the_block_was_left_is_said(shop: Shop) -> None:
    for _ in range(3):
        async with shop.service.transaction("t1") as tx:
            shop.leave_behind(tx)
            await asyncio.sleep(0)
    await asyncio.gather(*shop.tasks)
    assert len(shop.given) > 15
    assert set(shop.given) <= await shop.said()


async def test_whatever_was_given_an_id_while_a_handler_ended_is_said(shop: Shop) -> None:
    async with app_of(shop.service).running():
        async with shop.service.transaction("t1") as tx:
            tx.publish(Placed(order_id="1"))
            tx.publish(Placed(order_id="2"))
        await drained(shop.service)
        await asyncio.gather(*shop.tasks)
        assert len(shop.given) >= 10
        assert set(shop.given) <= await shop.said()


async def test_what_is_said_while_something_is_flushed_stays_for_the_end(shop: Shop) -> None:
    async with shop.service.transaction("t1") as tx:
        shop.leave_behind(tx, times=50)
        await asyncio.sleep(0)
        await tx.flush()
        await tx.flush_timers()
    await asyncio.gather(*shop.tasks)
    assert set(shop.given) <= await shop.said()


async def execute(shop: Shop, tx: Tx) -> None:
    await tx.execute("SELECT 1")


async def savepoint(shop: Shop, tx: Tx) -> None:
    async with tx.savepoint():
        await asyncio.sleep(0.05)


async def cancel(shop: Shop, tx: Tx) -> None:
    await tx.cancel("some")


async def start_saga(shop: Shop, tx: Tx) -> None:
    await shop.service.start_saga(tx, shop.order(order_id="1"))


async def decide(shop: Shop, tx: Tx) -> None:
    await shop.accounts.decide(tx, "1", lambda n: Placed(order_id="1"))


async def append(shop: Shop, tx: Tx) -> None:
    await shop.accounts.append(tx, "1", [Placed(order_id="1")], expected="any")


@pytest.mark.parametrize(
    "work", [execute, savepoint, cancel, start_saga, decide, append], ids=lambda w: str(w.__name__)
)
async def test_a_block_that_is_left_amid_some_work_commits_none_of_it(
    shop: Shop, work: Callable[[Shop, Tx], Awaitable[None]]
) -> None:
    """Whichever turn of the loop the block is left in: all of the work is committed, or none of it."""
    left = 0
    for turns in range(12):
        tasks = []
        with suppress(StoreError):
            async with shop.service.transaction(f"t{turns}") as tx:
                tasks.append(asyncio.ensure_future(work(shop, tx)))
                for _ in range(turns):
                    await asyncio.sleep(0)
        done = (await asyncio.gather(*tasks, return_exceptions=True))[0]
        left += isinstance(done, Exception)
        async with shop.service.transaction(f"t{turns}") as tx:
            kept = (await shop.accounts.load(tx, "1")).version
        store = app_of(shop.service).store
        rows = [row for row in await store.outbox.kept(0, 1000) if row.tenant == f"t{turns}"]
        sagas = await store.sagas.find(SagaFilter(tenant=f"t{turns}"))
        assert len(rows) == kept + len(sagas), f"after {turns} turns: {done!r}"
    assert left


async def test_nothing_can_be_appended_to_a_block_that_was_left(shop: Shop) -> None:
    async with shop.service.transaction("t1") as tx:
        rows = await tx.build(Noted(order_id="1"), {})
    with pytest.raises(TransactionClosed):
        tx.append(rows)

"""One of two files is brought back from yesterday's backup while the other is of today: nothing vanishes in silence."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from posthouse import App, Event, Service, Tx
from posthouse.app import app_of
from posthouse.resend import Choice, resend
from posthouse.store import HeldFilter
from posthouse.watch.status import Status, status
from tests.kit.shop import OrderPlaced
from tests.kit.waiting import eventually

TABLE = "CREATE TABLE IF NOT EXISTS invoice (order_id TEXT, number INTEGER)"


class Shop:
    """A producer and a consumer on the embedded default, each with a file of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.orders, self.billing = (Service(name, namespace="shop") for name in ("orders", "billing"))
        for service in (self.orders, self.billing):
            App(service, store=f"sqlite:///{place / service.name}.db", broker=f"embedded:///{place}/log.db")
        self.orders.event("order.placed.v1", key="order_id")(OrderPlaced)
        self.billing.on(OrderPlaced)(self._invoice)

    async def _invoice(self, event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(TABLE)
        await tx.execute("INSERT INTO invoice VALUES (?, ?)", (event.data.order_id, event.data.number))

    async def say(self, *numbers: int) -> None:
        for number in numbers:
            async with self.orders.transaction(tenant="t1") as tx:
                tx.publish(OrderPlaced(order_id="o1", number=number))

    async def day(self, *numbers: int, consume: bool = True) -> Status:
        """Open, say these, let them be dealt with, close."""
        async with contextlib.AsyncExitStack() as running:
            running.push_async_callback(self.billing.aclose)
            await running.enter_async_context(self.orders.running())
            if consume:
                await running.enter_async_context(self.billing.running())
            await self.say(*numbers)
            async with asyncio.timeout(20):
                while True:
                    figures = await status([self.orders, self.billing])
                    at_rest = figures.quiet and not any(line.held for line in figures.lines)
                    if at_rest if consume else not any(figures.unsent.values()):
                        return figures
                    await asyncio.sleep(0.01)

    def backed_up(self, name: str) -> Path:
        kept = self.place / f"{name}.backup"
        with contextlib.closing(sqlite3.connect(self.place / f"{name}.db")) as source:
            source.execute("VACUUM INTO ?", (str(kept),))
        return kept

    def bring_back(self, name: str) -> None:
        for ending in ("", "-wal", "-shm"):
            (self.place / f"{name}.db{ending}").unlink(missing_ok=True)
        os.replace(self.place / f"{name}.backup", self.place / f"{name}.db")

    async def has_aside(self, count: int) -> bool:
        held = await app_of(self.billing).store.held.find(HeldFilter(state="quarantined"))
        return sum("fork" in one.reason for one in held) == count

    async def has_come_to(self, count: int) -> bool:
        return len(self.invoices()) == count

    def invoices(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self.place / "billing.db")) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM invoice ORDER BY rowid")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
async def test_a_producer_that_was_brought_back_has_none_of_its_new_facts_taken_for_a_duplicate(
    shop: Shop, told: bool
) -> None:
    await shop.day(1, 2, 3)
    shop.backed_up("orders")
    await shop.day(4, 5, 6)
    shop.bring_back("orders")
    if told:
        assert (await app_of(shop.orders).store.restored()).lineage == 2
        await shop.orders.aclose()
    async with shop.orders.running(), shop.billing.running():
        await shop.say(14, 15, 16, 17)
        async with asyncio.timeout(20):
            while True:
                line = (await status([shop.orders, shop.billing])).lines[0]
                if line.applied + sum(line.held.values()) >= 10:
                    break
                await asyncio.sleep(0.01)
    assert line.held == {"quarantined": 3}
    assert shop.invoices() == [1, 2, 3, 4, 5, 6, 17]
    held = await app_of(shop.billing).store.held.find(HeldFilter())
    await shop.billing.aclose()
    assert all("fork" in one.reason for one in held), [one.reason for one in held]


@pytest.mark.parametrize("later", [False, True], ids=["all were lost", "later ones came"])
@pytest.mark.parametrize("missing", [True, False], ids=["missing", "all"])
async def test_new_facts_that_the_broker_lost_are_sent_again_and_none_is_taken_for_a_duplicate(
    shop: Shop, later: bool, missing: bool
) -> None:
    await shop.day(1)
    shop.backed_up("orders")
    await shop.day(2, 3)
    shop.bring_back("orders")
    await app_of(shop.orders).store.restored()
    await shop.day(12, 13, *([] if later else [14, 15]), consume=False)
    for ending in ("", "-wal", "-shm"):
        (shop.place / f"log.db{ending}").unlink(missing_ok=True)
    async with shop.orders.running(), shop.billing.running():
        if later:
            await shop.say(14, 15)
            await eventually(lambda: shop.has_come_to(5), "the later facts to be applied")
        sent = await resend([app_of(shop.orders), app_of(shop.billing)], Choice(missing=missing))
        assert sent[0].sent == 5 - (1 if missing else 0) - (2 if missing and later else 0)
        await eventually(lambda: shop.has_aside(2), "the facts under numbers given again to be set aside")
        await eventually(lambda: shop.has_come_to(5), "the others to be applied")
        again = await resend([app_of(shop.orders), app_of(shop.billing)], Choice(missing=True))
        assert again[0].sent == 0
    assert shop.invoices() == [1, 2, 3, 14, 15]
    await shop.billing.aclose()


async def test_a_timer_that_was_brought_back_has_its_fact_not_taken_for_a_duplicate(shop: Shop) -> None:
    """It was armed before all that its key has said since, and fires under a number that is given again."""
    await shop.day(1)
    async with shop.orders.transaction(tenant="t1") as tx:
        tx.publish(OrderPlaced(order_id="o1", number=13), after=3600, timer="expiry")
    await shop.orders.aclose()
    shop.backed_up("orders")
    await shop.day(2, 3, 4)
    shop.bring_back("orders")
    with contextlib.closing(sqlite3.connect(shop.place / "orders.db")) as connection, connection:
        assert connection.execute("UPDATE posthouse_timer SET due_at = 0").rowcount == 1
    async with shop.orders.running(), shop.billing.running():
        await eventually(lambda: shop.has_aside(1), "the fact of the timer to be set aside")
    assert shop.invoices() == [1, 2, 3, 4]
    await shop.billing.aclose()


async def test_a_consumer_that_was_brought_back_is_known_to_lack_events_and_gets_them_again(shop: Shop) -> None:
    await shop.day(1, 2, 3)
    shop.backed_up("billing")
    await shop.day(4, 5, 6)
    shop.bring_back("billing")
    figures = await status([shop.orders, shop.billing])
    assert figures.verdict == "does not add up"
    assert figures.lines[0].difference == 3
    await app_of(shop.billing).broker.seek("billing", "shop.orders.order", time=0.0)
    figures = await shop.day(7)
    assert figures.verdict == "adds up"
    assert shop.invoices() == [1, 2, 3, 4, 5, 6, 7]


async def test_a_log_that_was_brought_back_is_known_to_lack_events(shop: Shop) -> None:
    await shop.day(1, 2, 3)
    shop.backed_up("log")
    await shop.day(4, 5, consume=False)
    shop.bring_back("log")
    figures = await status([shop.orders, shop.billing])
    assert figures.verdict == "does not add up"
    assert figures.lines[0].difference == 2
    async with shop.orders.running(), shop.billing.running():
        await shop.say(6)
        async with asyncio.timeout(20):
            while not (line := (await status([shop.orders, shop.billing])).lines[0]).held:  # noqa: ASYNC110 - another task holds it
                await asyncio.sleep(0.01)
    assert line.held == {"gap": 1}
    assert line.difference == 2
    assert shop.invoices() == [1, 2, 3]


async def test_a_log_that_was_brought_back_brings_nothing_twice_that_was_applied(shop: Shop) -> None:
    await shop.day(1, 2, 3)
    shop.backed_up("log")
    await shop.day(4, 5)
    shop.bring_back("log")
    figures = await shop.day(6, 7)
    assert figures.verdict == "adds up"
    assert shop.invoices() == [1, 2, 3, 4, 5, 6, 7]

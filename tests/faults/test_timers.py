"""Timers that are moved, given up and set again: a cancel reaches every setting of a name that its transaction knows of."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of

from .stores import House, stores

__all__ = ["stores"]

pytestmark = pytest.mark.usefixtures("stores")

shop = Service("shop")
answers: list[bool] = []
transactions: set[int] = set()
fired: list[tuple[str, int]] = []


@shop.event("order.moved.v1", key="order_id")
class Moved(Payload):
    order_id: str
    what: str


@shop.event("order.expired.v1", key="order_id")
class Expired(Payload):
    order_id: str
    setting: int = 0


@shop.on(Moved, consumer="expiry", policy=Policy(grouped=True))
async def expire_unless_paid(event: Event[Moved], tx: Tx) -> None:
    transactions.add(id(tx.transaction))
    if event.data.what == "placed":
        tx.publish(Expired(order_id=event.data.order_id), after=5, timer=f"expiry {event.data.order_id}")
    if event.data.what == "paid":
        answers.append(await tx.cancel(f"expiry {event.data.order_id}"))


@shop.on(Expired, consumer="mail")
async def tell(event: Event[Expired], tx: Tx) -> None:
    fired.append((event.data.order_id, event.data.setting))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    answers.clear()
    transactions.clear()
    fired.clear()


def expiry(tx: Tx, setting: int) -> None:
    tx.publish(Expired(order_id="o1", setting=setting), after=5, timer="expiry")


@pytest.mark.parametrize("stored", [True, False])
async def test_a_timer_that_is_moved_and_then_cancelled_in_one_transaction_never_fires(stored: bool) -> None:
    async with House(shop) as house:
        if stored:
            async with shop.transaction("t1") as tx:
                expiry(tx, 1)
        async with shop.transaction("t1") as tx:
            if not stored:
                expiry(tx, 1)
            expiry(tx, 2)
            assert await tx.cancel("expiry")
            assert not await tx.cancel("expiry"), "nothing is left of it"
        assert await app_of(shop).store.timers.pending() == []
        async with shop.transaction("t1") as tx:
            expiry(tx, 3)
            assert await tx.cancel("expiry")
            expiry(tx, 4)
        await house.advance(5)
        assert fired == [("o1", 4)]


async def _cancel_and_fail(tx: Tx) -> None:
    async with tx.savepoint():
        assert await tx.cancel("expiry")
        raise ZeroDivisionError


async def test_a_cancel_that_is_rolled_back_leaves_the_setting_of_before() -> None:
    async with House(shop) as house:
        async with shop.transaction("t1") as tx:
            expiry(tx, 1)
        async with shop.transaction("t1") as tx:
            expiry(tx, 2)
            with pytest.raises(ZeroDivisionError):
                await _cancel_and_fail(tx)
        await house.advance(5)
        assert fired == [("o1", 2)]


async def test_an_event_of_a_group_can_cancel_the_timer_that_one_before_it_has_set() -> None:
    async with House(shop) as house:
        async with shop.transaction("t1") as tx:
            for order in ("o1", "o2", "o3"):
                for what in ("placed", "packed", "paid") if order != "o2" else ("placed", "paid", "placed"):
                    tx.publish(Moved(order_id=order, what=what))
        await house.settled()
        assert len(transactions) == 1, "they were not one group: this test shows nothing"
        assert answers == [True, True, True]
        await house.advance(5)
        assert fired == [("o2", 0)]

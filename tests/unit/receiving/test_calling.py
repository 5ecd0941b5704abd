"""Handlers that call outside before their transaction begins."""

from __future__ import annotations

import asyncio
import time

import pytest

from posthouse import Event, Payload, Policy, RetryNow, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness

shop = Service("shop")
desk = Service("desk")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    """An order."""

    order_id: str
    number: int = 1


@desk.event("charge.made.v1", key="order_id")
class ChargeMade(Payload):
    """Money came in."""

    order_id: str
    answer: str


class Vendor:
    """What the outside was asked, and how it behaves."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.failures = 0
        self.delay = 0.0

    async def charge(self, event: Event[OrderPlaced]) -> str:
        self.asked.append((event.data.order_id, event.data.number))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer")
        await asyncio.sleep(self.delay)
        return f"paid {event.data.order_id}"


def paying(vendor: Vendor, policy: Policy | None = None) -> Service:
    service = Service("desk")
    service.declared.catalogue.add(next(iter(desk.declared.catalogue)))

    @service.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS charge (order_id TEXT, number INTEGER, answer TEXT)")

    @service.on(OrderPlaced, policy=policy, calling=vendor.charge)
    async def made(event: Event[OrderPlaced], tx: Tx, answer: str) -> ChargeMade:
        await tx.execute("INSERT INTO charge VALUES (?, ?, ?)", (event.data.order_id, event.data.number, answer))
        return ChargeMade(order_id=event.data.order_id, answer=answer)

    return service


async def rows(service: Service) -> list[tuple[object, ...]]:
    async with app_of(service).store.begin() as tx:
        return list(await tx.execute("SELECT * FROM charge ORDER BY order_id, number"))


async def test_the_answer_of_the_outside_reaches_the_handler_and_what_it_says_is_published() -> None:
    vendor = Vendor()
    service = paying(vendor)
    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
        assert await rows(service) == [("o1", 1, "paid o1")]
        assert [e.data.answer for e in await h.published(ChargeMade)] == ["paid o1"]
    assert vendor.asked == [("o1", 1)]


async def test_a_duplicate_is_not_asked_about_again() -> None:
    vendor = Vendor()
    service = paying(vendor)
    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.assert_replay_safe()
    assert vendor.asked == [("o1", 1)]


async def test_no_transaction_is_open_while_the_outside_thinks() -> None:
    vendor = Vendor()
    service = paying(vendor)
    free: list[bool] = []

    async def slow(event: Event[OrderPlaced]) -> str:
        began = time.monotonic()
        async with service.transaction("t1") as tx:  # SQLite has one writer: this waits if somebody else writes
            await tx.execute("INSERT INTO charge VALUES ('while asking', 0, '')")
        free.append(time.monotonic() - began < 5)
        return "late"

    vendor.charge = slow  # type: ignore[method-assign]
    service = paying(vendor)
    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
        assert await rows(service) == [("o1", 1, "late"), ("while asking", 0, "")]
    assert free == [True]


async def test_a_call_that_fails_is_a_failed_run_and_later_events_of_the_key_wait() -> None:
    vendor = Vendor()
    vendor.failures = 1
    service = paying(vendor)
    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1", number=1))
        await h.settled()
        await h.publish(OrderPlaced(order_id="o1", number=2))
        await h.publish(OrderPlaced(order_id="o2", number=1))
        await h.settled()
        assert await rows(service) == [("o2", 1, "paid o2")]
        assert [e.state for e in await h.held(service)] == ["retrying", "blocked"]
        await h.advance(60)
        assert await rows(service) == [("o1", 1, "paid o1"), ("o1", 2, "paid o1"), ("o2", 1, "paid o2")]
    assert [asked for asked in vendor.asked if asked[0] == "o1"] == [("o1", 1), ("o1", 1), ("o1", 2)]


async def test_an_answer_is_not_lost_when_the_handler_wants_another_try() -> None:
    vendor = Vendor()
    service = Service("desk")
    tries: list[str] = []

    @service.on(OrderPlaced, calling=vendor.charge)
    async def made(event: Event[OrderPlaced], tx: Tx, answer: str) -> None:
        tries.append(answer)
        if len(tries) == 1:
            raise RetryNow("once more")

    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
    assert tries == ["paid o1", "paid o1"]
    assert len(vendor.asked) == 2, "the outside is asked again: only it knows whether the first time counted"


async def test_a_call_that_never_answers_is_given_up_at_the_deadline() -> None:
    vendor = Vendor()
    vendor.delay = 60.0
    service = paying(vendor, Policy(deadline=0.05))
    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
        (held,) = await h.held(service)
        assert held.state == "retrying"
        assert "deadline of 0.05 s" in held.error
        vendor.delay = 0.0
        await h.advance(60)
        assert await rows(service) == [("o1", 1, "paid o1")]


async def test_calls_for_different_keys_run_side_by_side_on_a_store_with_one_writer() -> None:
    together, most = 0, 0

    async def ask(event: Event[OrderPlaced]) -> str:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.02)
        together -= 1
        return "ok"

    service = Service("desk")

    @service.on(OrderPlaced, calling=ask)
    async def made(event: Event[OrderPlaced], tx: Tx, answer: str) -> None:
        pass

    async with Harness(shop, service) as h:
        assert app_of(service).store.writers == 1
        for number in range(32):
            await h.publish(OrderPlaced(order_id=f"o{number}"))
        await h.settled()
    assert 2 <= most <= 16


async def test_a_plain_function_may_ask_and_runs_in_a_thread() -> None:
    service = Service("desk")
    heard: list[str] = []

    def ask(event: Event[OrderPlaced]) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return "from a thread"

    @service.on(OrderPlaced, calling=ask)
    async def made(event: Event[OrderPlaced], tx: Tx, answer: str) -> None:
        heard.append(answer)

    async with Harness(shop, service) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
    assert heard == ["from a thread"]


def test_a_handler_that_does_not_take_the_answer_is_refused() -> None:
    async def handler(event: Event[OrderPlaced], tx: Tx) -> None: ...

    with pytest.raises(
        ConfigurationError, match="takes 2 arguments: with calling=… a handler takes the event, a Tx and"
    ):
        Service("desk").on(OrderPlaced, calling=Vendor().charge)(handler)


def test_a_handler_of_lists_cannot_call() -> None:
    async def handler(events: list[Event[OrderPlaced]], tx: Tx, answer: str) -> None: ...

    async def grouped(event: Event[OrderPlaced], tx: Tx, answer: str) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot take a list or share a transaction"):
        Service("desk").on(OrderPlaced, calling=Vendor().charge)(handler)
    with pytest.raises(ConfigurationError, match="cannot take a list or share a transaction"):
        Service("desk").on(OrderPlaced, policy=Policy(grouped=True), calling=Vendor().charge)(grouped)

"""The whole way of an event, in memory: what a user of the library sees."""

from __future__ import annotations

import pydantic
import pytest

from posthouse import Event, Payload, Policy, Reject, RetryNow, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, StoreError
from posthouse.receiving.holding import CARRIED, CARRIED_BYTES, HEADER_LIMIT, _carried, _header
from posthouse.testing import Harness

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@orders.event("order.cancelled.v1", key="order_id")
class OrderCancelled(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str
    total_cents: int


broken: set[str] = set()
runs: list[str] = []


@billing.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (tenant TEXT, order_id TEXT, what TEXT, event_id TEXT)")


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    runs.append(event.data.order_id)
    sql = "INSERT INTO invoice VALUES (?, ?, 'placed', ?)"
    await tx.execute(sql, (event.tenant, event.data.order_id, event.id))
    if event.data.order_id in broken:
        raise RuntimeError("the ledger is closed")
    return InvoiceIssued(order_id=event.data.order_id, total_cents=event.data.total_cents)


@billing.on(OrderCancelled)
async def credit(event: Event[OrderCancelled], tx: Tx) -> None:
    await tx.execute("INSERT INTO invoice VALUES (?, ?, 'cancelled', ?)", (event.tenant, event.data.order_id, event.id))


@pytest.fixture(autouse=True)
def _mended() -> None:
    broken.clear()
    runs.clear()


async def invoices(tenant: str = "t1") -> list[tuple[object, ...]]:
    async with app_of(billing).store.begin() as tx:
        return list(await tx.execute("SELECT order_id, what FROM invoice WHERE tenant = ? ORDER BY rowid", (tenant,)))


async def test_an_event_goes_from_a_transaction_to_an_applied_effect() -> None:
    async with Harness(orders, billing) as harness:
        async with orders.transaction("t1", correlation="01JCORRELATION") as tx:
            placed = tx.publish(OrderPlaced(order_id="o1", total_cents=1200))
        figures = await harness.settled()
        assert await invoices() == [("o1", "placed")]
        [issued] = await harness.published(InvoiceIssued)
        assert issued.data == InvoiceIssued(order_id="o1", total_cents=1200)
        assert (issued.causation, issued.correlation, issued.tenant) == (placed, "01JCORRELATION", "t1")
        assert [(line.committed, line.applied) for line in figures.lines] == [(1, 1)]


async def test_a_rolled_back_event_is_never_seen() -> None:
    async with Harness(orders, billing) as harness:
        with pytest.raises(ZeroDivisionError):
            async with orders.transaction("t1") as tx:
                tx.publish(OrderPlaced(order_id="o1", total_cents=1 // (len(tx.tenant) - 2)))
        await harness.settled()
        assert await harness.published(OrderPlaced) == []
        assert await invoices() == []


async def write_where_nothing_can_be_said() -> None:
    async with orders.transaction("t1") as tx:
        await tx.execute("CREATE TABLE written (x)")
        await tx.execute("DROP TABLE posthouse_outbox")
        tx.publish(OrderPlaced(order_id="o1", total_cents=1))


async def test_rows_roll_back_when_their_facts_cannot_be_written() -> None:
    async with Harness(orders, billing) as harness:
        with pytest.raises(StoreError, match="posthouse_outbox"):
            await write_where_nothing_can_be_said()
        async with orders.transaction("t1") as tx:
            names = "SELECT name FROM sqlite_master WHERE name IN ('written', 'posthouse_outbox')"
            assert await tx.execute(names) == [("posthouse_outbox",)]
        await harness.publish(OrderPlaced(order_id="o2", total_cents=2))
        await harness.settled()
        assert await invoices() == [("o2", "placed")]


async def test_a_failing_event_keeps_its_key_waiting_and_no_other() -> None:
    async with Harness(orders, billing) as harness:
        broken.add("o1")
        async with orders.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="o1", total_cents=1))
            tx.publish(OrderCancelled(order_id="o1"))
            tx.publish(OrderPlaced(order_id="o2", total_cents=2))
        await harness.settled()
        assert await invoices() == [("o2", "placed")]
        assert [held.state for held in await harness.held(billing)] == ["retrying", "blocked"]
        broken.clear()
        await harness.advance(10)
        assert await invoices() == [("o2", "placed"), ("o1", "placed"), ("o1", "cancelled")]


async def test_an_event_that_always_fails_is_dead_after_seven_runs_and_waits_for_an_operator() -> None:
    async with Harness(orders, billing) as harness:
        broken.add("o1")
        await harness.publish(OrderPlaced(order_id="o1", total_cents=1))
        await harness.publish(OrderCancelled(order_id="o1"))
        await harness.settled()
        for _ in range(10):
            await harness.advance(600)
        dead, blocked = await harness.held(billing)
        assert (dead.state, dead.attempts, len(runs), blocked.state) == ("dead", 7, 7, "blocked")
        assert "the ledger is closed" in dead.error
        letters = harness.broker.log.topics["shop.orders.order.dlq"]
        assert [letter.frame.id for letter in letters] == [dead.entry.event_id]
        assert letters[0].frame.headers["ph-attempts"] == "7"
        broken.clear()
        await billing.held.retry(dead.id)
        await harness.advance(1)
        assert await invoices() == [("o1", "placed"), ("o1", "cancelled")]
        assert await harness.held(billing) == []


async def test_a_skipped_event_lets_its_key_go_on() -> None:
    async with Harness(orders, billing) as harness:
        broken.add("o1")
        await harness.publish(OrderPlaced(order_id="o1", total_cents=1))
        await harness.publish(OrderCancelled(order_id="o1"))
        await harness.settled()
        first, _ = await harness.held(billing)
        await billing.held.skip(first.id)
        figures = await harness.advance(1)
        assert await invoices() == [("o1", "cancelled")]
        assert [line.skipped for line in figures.lines] == [1]


async def test_a_second_delivery_of_everything_changes_nothing() -> None:
    async with Harness(orders, billing) as harness:
        for n in range(20):
            await harness.publish(OrderPlaced(order_id=f"o{n % 5}", total_cents=n))
        await harness.assert_replay_safe()
        assert len(await invoices()) == 20


async def test_a_timer_says_its_fact_when_its_time_has_come_and_not_when_cancelled() -> None:
    async with Harness(orders, billing) as harness:
        async with orders.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="o1", total_cents=1), after=30, timer="hold:o1")
            tx.publish(OrderPlaced(order_id="o2", total_cents=2), after=30, timer="hold:o2")
        async with orders.transaction("t1") as tx:
            assert await tx.cancel("hold:o2")
        await harness.advance(29)
        assert await invoices() == []
        await harness.advance(1)
        assert await invoices() == [("o1", "placed")]


async def test_errors_are_told_apart() -> None:
    shop = Service("shop")

    @shop.event("thing.made.v1", key="name")
    class ThingMade(Payload):
        name: str

    calls: list[str] = []

    @shop.on(ThingMade, policy=Policy(never_retry=(KeyError,)))
    async def handle(event: Event[ThingMade], tx: Tx) -> None:
        calls.append(event.data.name)
        if event.data.name == "never":
            raise KeyError("gone")
        if event.data.name == "reject":
            raise Reject("not for me")
        if event.data.name == "now" and calls.count("now") < 3:
            raise RetryNow("busy")

    async with Harness(shop) as harness:
        for name in ("never", "reject", "now"):
            await harness.publish(ThingMade(name=name))
        await harness.settled()
        assert calls.count("now") == 3
        assert {(h.state, h.attempts) for h in await harness.held(shop)} == {("dead", 1)}


async def test_a_pydantic_payload_that_a_handler_returns_is_one_event() -> None:
    shop = Service("shop")

    @shop.event("thing.made.v1", key="name")
    class ThingMade(pydantic.BaseModel):
        name: str

    @shop.event("thing.seen.v1", key="name")
    class ThingSeen(pydantic.BaseModel):
        name: str

    @shop.on(ThingMade)
    async def see(event: Event[ThingMade]) -> ThingSeen:
        return ThingSeen(name=event.data.name)

    async with Harness(shop) as harness:
        await harness.publish(ThingMade(name="a"))
        await harness.settled()
        assert [event.data for event in await harness.published(ThingSeen)] == [ThingSeen(name="a")]


def test_a_plain_function_may_not_ask_for_a_transaction_it_cannot_await() -> None:
    shop = Service("shop")

    @shop.event("thing.made.v1")
    class ThingMade(Payload):
        name: str

    def handle(event: Event[ThingMade], tx: Tx) -> None: ...

    with pytest.raises(ConfigurationError, match="make it async"):
        shop.on(ThingMade)(handle)


async def test_the_story_of_a_dead_letter_fits_into_headers_of_any_broker() -> None:
    shop = Service("shop")

    @shop.event("thing.made.v1", key="name")
    class ThingMade(Payload):
        name: str

    @shop.on(ThingMade)
    async def handle(event: Event[ThingMade]) -> None:
        raise Reject("zwei Zeilen:\nÄrger" + "!" * 10_000)

    async with Harness(shop) as harness:
        await harness.publish(ThingMade(name="a"))
        await harness.settled()
        [letter] = harness.broker.log.topics["shop.thing.dlq"]
    story = {name: text for name, text in letter.frame.headers.items() if name.startswith("ph-")}
    assert {"ph-consumer", "ph-error", "ph-stack", "ph-attempts", "ph-first-at", "ph-last-at"} <= story.keys()
    assert all(text.isascii() and text.isprintable() and len(text) < 9_000 for text in story.values())


def test_a_dead_letter_carries_of_many_and_long_headers_those_that_every_broker_takes() -> None:
    strange = {"long": "x" * 130_900, **{f"h{n}": "\N{SNOWMAN}" * 400 for n in range(200)}, "short": "1"}
    carried = _carried(strange)
    assert carried["short"] == "1"
    assert "long" not in carried
    assert int(carried["ph-cut"]) == len(strange) + 1 - len(carried)
    assert 20 < len(carried) <= CARRIED + 1
    assert sum(len(name) + len(text.encode()) for name, text in carried.items()) <= CARRIED_BYTES + len("ph-cut176")
    assert _carried({"a": "1", "b": ""}) == {"a": "1", "b": ""}


def test_a_part_of_the_story_is_cut_behind_its_escapes() -> None:
    assert len(_header("\N{SNOWMAN}" * 5_000)) <= HEADER_LIMIT

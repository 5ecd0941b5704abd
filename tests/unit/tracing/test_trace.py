"""Everything that one request caused, found in logs and stores, and what consumers did with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Topology
from posthouse.errors import BrokerError
from posthouse.history.log import stored
from posthouse.survey import PASSING
from posthouse.testing import Harness, rehost
from posthouse.tracing import Trace, trace
from posthouse.tracing.gathering import gather
from posthouse.tracing.standing import standings
from posthouse.tracing.wanted import Wanted

EVER = 0.0


class Shop:
    """Two services: an order is invoiced, and the customer is reminded later."""

    def __init__(self, *, order: str = "key", fails: bool = False) -> None:
        self.orders = Service("orders", namespace="shop")
        self.billing = Service("billing", namespace="shop")
        App(self.billing, settings=Settings(inbox_retention=40 * 86_400.0))
        self.services = (self.orders, self.billing)

        @self.orders.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        @self.billing.event("invoice.issued.v1", key="order_id")
        class Issued(Payload):
            order_id: str

        @self.billing.event("reminder.sent.v1", key="order_id")
        class Reminded(Payload):
            order_id: str

        self.placed = Placed
        self.issued = Issued
        policy = Policy(max_attempts=1, order="key" if order == "key" else "none")

        @self.billing.on(Placed, policy=policy)
        async def invoice(event: Event[Placed], tx: Tx) -> Issued:
            if fails:
                raise ValueError("no such customer")
            tx.publish(Reminded(order_id=event.data.order_id), after=86_400.0)
            return Issued(order_id=event.data.order_id)


def types(found: Trace) -> list[str]:
    return [branch.spot.event.type.removeprefix("shop.") for branch in found.branches]


def states(found: Trace) -> list[str]:
    return [heard.state for all_heard in found.heard.values() for heard in all_heard]


async def test_a_trace_holds_what_a_request_caused_with_timers_and_what_consumers_did() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="other"))
        event_id = await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        found = await trace(shop.services, "req-1")
        assert types(found) == ["orders.order.placed.v1", "billing.invoice.issued.v1", "billing.reminder.sent.v1"]
        assert [branch.depth for branch in found.branches] == [0, 1, 1]
        assert [branch.spot.place for branch in found.branches] == ["log", "log", "timer"]
        assert found.branches[2].spot.at == pytest.approx(harness.clock.now() + 86_400)
        ((heard,),) = found.heard.values()
        assert (heard.consumer, heard.state) == ("billing", "applied")
        assert found.branches[0].spot.event.id == event_id
        assert found.services == ["billing", "orders"]


async def test_the_id_of_any_event_leads_to_the_whole_tree() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        (issued,) = await harness.published(shop.issued)
        found = await trace(shop.services, issued.id, EVER)
        assert found.correlation == "req-1"
        assert found.branches[0].spot.event.type == "shop.orders.order.placed.v1"


async def test_an_event_that_nobody_correlated_is_the_beginning_of_its_own() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        event_id = await harness.publish(shop.placed(order_id="o1"))
        await harness.settled()
        found = await trace(shop.services, event_id, EVER)
        assert found.correlation == event_id
        assert len(found.branches) == 3


async def test_a_held_event_names_its_number_and_the_error() -> None:
    shop = Shop(fails=True)
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        found = await trace(shop.services, "req-1")
        ((heard,),) = found.heard.values()
        (held,) = await harness.held(shop.billing)
        assert (heard.state, heard.held) == ("dead", held.id)
        assert "no such customer" in heard.note
        assert len(harness.broker.log.topics["shop.orders.order.dlq"]) == 1
        assert found.read == 1, "dead letters are copies"


@pytest.mark.parametrize("order", ["key", "none"])
async def test_what_did_not_reach_a_consumer_yet_is_waiting_there(order: str) -> None:
    shop = Shop(order=order)
    async with Harness(shop.orders) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        before = rehost(shop.billing, store="sqlite://", broker=harness.broker, clock=harness.clock)
        try:
            await app_of(shop.billing).open()
            found = await trace(shop.services, "req-1")
            assert states(found) == ["waiting"]
        finally:
            await app_of(shop.billing).store.aclose()
            shop.billing.hosted_by(before)


async def test_an_unordered_event_is_applied_by_its_own_row_and_unknown_once_that_is_forgotten() -> None:
    shop = Shop(order="none")
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        assert states(await trace(shop.services, "req-1")) == ["applied"]
        await harness.publish(shop.placed(order_id="o2"), correlation="req-2")
        await harness.settled()
        await app_of(shop.billing).store.inbox.purge(-1.0, 10)
        gathered = await gather(shop.services, Wanted("req-2"), None)
        alone = {event_id: spot for event_id, spot in gathered.spots.items() if spot.event.causation is None}
        assert states(await trace(shop.services, "req-2")) == ["applied"], "what it said afterwards proves it"
        ((heard,),) = (await standings(shop.services, alone, [])).values()
        assert heard.state == "unknown"


async def test_what_a_service_said_proves_nothing_about_either_of_two_consumers() -> None:
    shop = Shop(order="none")

    @shop.billing.on(shop.placed, consumer="audit", policy=Policy(order="none"))
    async def note(event: Event[object], tx: Tx) -> None:
        return None

    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        await app_of(shop.billing).store.inbox.purge(-1.0, 10)
        assert states(await trace(shop.services, "req-1")) == ["unknown", "unknown"]


async def test_a_consumer_that_joined_late_has_passed_what_it_cannot_tell() -> None:
    shop = Shop()
    async with Harness(shop.orders) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        late = Service("audit", namespace="shop")
        App(late, settings=Settings(start="latest"))

        @late.on(shop.placed)
        async def note(event: Event[object], tx: Tx) -> None:
            return None

        before = rehost(late, store="sqlite://", broker=harness.broker, clock=harness.clock)
        try:
            async with late.running():
                await harness.publish(shop.placed(order_id="o1"), correlation="req-2")
                async with asyncio.timeout(10):
                    while not (await app_of(late).store.counts()).applied:
                        await harness.settled()
                assert states(await trace([shop.orders, late], "req-1")) == ["passed"]
        finally:
            late.hosted_by(before)


async def test_what_the_broker_refuses_is_found_in_the_outbox_with_the_reason() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.settled()
        topic = "shop.orders.order"
        kept = harness.broker.log.topics.pop(topic)
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        async with asyncio.timeout(10):
            while not await app_of(shop.orders).store.outbox.stuck():
                harness.clock.advance(0.1)
                await asyncio.sleep(0)
        found = await trace([shop.orders], "req-1")
        (branch,) = found.branches
        assert branch.spot.place == "refused"
        assert topic in branch.spot.note
        harness.broker.log.topics[topic] = kept


async def test_nothing_of_the_reader_is_left_in_the_broker_and_no_other_group_moves() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        for number in range(30):
            await harness.publish(shop.placed(order_id=f"o{number}"), correlation="req-1")
        await harness.settled()
        before = await harness.broker.survey(app_of(shop.orders).opened.topology())
        found = await trace(shop.services, "req-1")
        assert len(found.branches) == 90
        assert await harness.broker.survey(app_of(shop.orders).opened.topology()) == before


async def test_readers_that_a_killed_trace_left_are_swept_away_and_those_at_work_are_not() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        topic = app_of(shop.orders).opened.topology().topics[0]
        left = await harness.broker.subscribe(f"{PASSING}left", [topic])
        await left.aclose()
        busy = await harness.broker.subscribe(f"{PASSING}busy", [topic])
        await trace(shop.services, "req-1")
        groups = {thing.group for thing in await harness.broker.survey(Topology())}
        assert f"{PASSING}left" not in groups
        assert f"{PASSING}busy" in groups
        await busy.aclose()


async def test_a_broker_without_a_log_is_named_and_the_stores_are_looked_into() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        harness.broker.sheet = msgspec.structs.replace(harness.broker.sheet, name="rabbitmq", history=False)
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        found = await trace(shop.services, "req-1")
        assert types(found) == ["orders.order.placed.v1", "billing.invoice.issued.v1", "billing.reminder.sent.v1"]
        assert [branch.spot.place for branch in found.branches] == ["outbox", "outbox", "timer"]
        assert found.notes == [
            "rabbitmq keeps no log: what was delivered is gone. Looked into outboxes, held events and timers only"
        ]
        assert found.read == 0


async def test_since_leaves_out_what_was_stored_before() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        await app_of(shop.orders).store.outbox.purge(10)
        await harness.advance(100.0)
        await harness.publish(shop.placed(order_id="o2"), correlation="req-1")
        await harness.settled()
        found = await trace([shop.orders], "req-1", harness.clock.now() - 1)
        assert [branch.spot.event.key for branch in found.branches] == ["o2"]


async def test_topics_that_do_not_exist_yet_are_empty() -> None:
    shop = Shop()
    async with Harness(shop.orders) as harness:
        found: Sequence[object] = [one async for one in stored(harness.broker, ["no.such"], None)]
        assert found == []


async def test_a_broker_without_a_log_cannot_be_read() -> None:
    async with Harness(Shop().orders) as harness:
        harness.broker.sheet = msgspec.structs.replace(harness.broker.sheet, history=False)
        with pytest.raises(BrokerError, match="keeps no log"):
            [one async for one in stored(harness.broker, ["a"], None)]


async def test_a_repeated_frame_is_one_event() -> None:
    shop = Shop()
    async with Harness(*shop.services) as harness:
        await harness.publish(shop.placed(order_id="o1"), correlation="req-1")
        await harness.settled()
        for log in list(harness.broker.log.topics.values()):
            await harness.broker.publish([one.frame for one in log])
        await harness.settled()
        assert len((await trace(shop.services, "req-1")).branches) == 3

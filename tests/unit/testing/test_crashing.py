"""A power cut after each step that lasts: what must hold all the same, and that the tool would notice if it did not."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.testing import Harness, assert_survives_crashes
from posthouse.testing.crashing_plant import Plant
from tests.unit.processes.saga.hotel import (
    AllocationCommitted,
    AllocationReleased,
    BookingCancelled,
    BookingConfirmed,
    BookingSaga,
    IntentCaptured,
    IntentFailed,
    inventory,
    payment,
    reservation,
)

HOTEL = (reservation, inventory, payment)


class Shop:
    """An order is counted and invoiced; `sins` says what its handler does wrong."""

    def __init__(self, sins: str = "", policy: Policy | None = None) -> None:
        self.shop = Service("shop")
        self.calls: list[str] = []
        self.in_memory = 0
        self.broken_until = 0.0
        self.openings = 0

        @self.shop.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        @self.shop.event("invoice.issued.v1", key="order_id")
        class Issued(Payload):
            order_id: str
            number: int

        @self.shop.event("reminder.sent.v1", key="order_id")
        class Reminded(Payload):
            order_id: str

        self.placed, self.issued = Placed, Issued

        @self.shop.setup
        async def tables(tx: Tx) -> None:
            self.openings += 1
            await tx.execute("CREATE TABLE IF NOT EXISTS orders (order_id TEXT, number INTEGER)")

        @self.shop.on(Placed, policy=policy or Policy())
        async def invoice(event: Event[Placed], tx: Tx) -> Issued:
            self.calls.append(event.data.order_id)
            if event.data.order_id == "o1" and app_of(self.shop).clock.now() < self.broken_until:
                raise ValueError("not now")
            self.in_memory += 1
            (count,) = (await tx.execute("SELECT count(*) FROM orders")).one()
            number = self.in_memory if sins == "memory" else int(str(count)) + 1
            await tx.execute("INSERT INTO orders VALUES (?, ?)", (event.data.order_id, number))
            tx.publish(Reminded(order_id=event.data.order_id), after=60.0)
            return Issued(order_id=event.data.order_id, number=number)

    async def scenario(self, harness: Harness) -> None:
        self.in_memory, self.calls = 0, []
        for order_id in ("o1", "o2", "o3"):
            await harness.publish(self.placed(order_id=order_id))
            await harness.settled()
        await harness.advance(60)


async def test_a_saga_ends_the_same_wherever_the_power_is_cut() -> None:
    async def scenario(harness: Harness) -> None:
        for booking_id in ("b1", "b2", "b3"):
            async with reservation.transaction("t1") as tx:
                await reservation.start_saga(tx, BookingSaga(booking_id=booking_id))
        await harness.settled()
        for booking_id in ("b1", "b2"):
            await harness.publish(AllocationCommitted(allocation_id=f"a-{booking_id}", booking_id=booking_id))
        await harness.settled()
        await harness.publish(IntentCaptured(booking_id="b1"))
        await harness.publish(IntentFailed(booking="b2"))
        await harness.settled()
        await harness.publish(AllocationReleased(allocation_id="a-b2", booking_id="b2"))
        await harness.advance(30)
        assert [event.data.booking_id for event in await harness.published(BookingConfirmed)][-1:] == ["b1"]
        assert {event.data.booking_id for event in await harness.published(BookingCancelled)} == {"b2", "b3"}

    crashes = await assert_survives_crashes(scenario, *HOTEL)
    assert crashes.runs == crashes.steps
    assert crashes.steps > 20


async def test_handlers_with_retries_timers_and_facts_end_the_same() -> None:
    shop = Shop(policy=Policy(max_attempts=5, first_delay=5.0, last_delay=5.0))

    async def scenario(harness: Harness) -> None:
        shop.broken_until = harness.clock.now() + 2
        await shop.scenario(harness)
        await harness.advance(10)
        await harness.advance(60)

    assert (await assert_survives_crashes(scenario, shop.shop)).runs > 10


async def test_a_handler_that_counts_in_memory_is_found_out() -> None:
    shop = Shop(sins="memory")

    async def forgetful(harness: Harness) -> None:
        shop.in_memory = 0
        for order_id in ("o1", "o2"):
            before = getattr(harness, "life", 0)
            await harness.publish(shop.placed(order_id=order_id))
            await harness.settled()
            if getattr(harness, "life", 0) != before:
                shop.in_memory = 0  # a process that starts knows nothing

    with pytest.raises(
        AssertionError, match=r"a crash after step \d+, .* of shop, leads to another end:\n  shop\.orders"
    ):
        await assert_survives_crashes(forgetful, shop.shop)


async def test_what_a_handler_does_outside_of_its_transaction_happens_again() -> None:
    shop = Shop()

    async def sorted_calls(harness: Harness) -> object:
        return sorted(shop.calls)

    with pytest.raises(AssertionError, match="leads to another end"):
        await assert_survives_crashes(shop.scenario, shop.shop, end=sorted_calls)


async def test_the_step_is_named_when_the_scenario_itself_fails() -> None:
    shop = Shop()

    async def scenario(harness: Harness) -> None:
        await shop.scenario(harness)
        assert getattr(harness, "life", 0) == 0, "the lights went out"

    with pytest.raises(AssertionError, match=r"a crash after step 1, .* of shop: AssertionError\(.the lights went out"):
        await assert_survives_crashes(scenario, shop.shop)


async def test_only_some_of_the_steps_may_be_tried() -> None:
    shop = Shop()
    crashes = await assert_survives_crashes(shop.scenario, shop.shop, every=5)
    assert crashes.runs == len(range(1, crashes.steps + 1, 5))


async def test_a_crash_really_happens_and_leaves_work_behind_that_is_done_afterwards() -> None:
    shop = Shop()
    seen = set()
    for number in range(1, 10):
        async with Plant(shop.shop, kill_after=number) as plant:
            await plant.publish(shop.placed(order_id="o1"))
            await plant.settled()
            assert plant.killed_after is None or (plant.life, shop.openings) == (1, 2), "opened anew, as a process does"
            shop.openings = 0
            assert len(await plant.published(shop.issued)) >= 1
            seen.add(str(plant.killed_after))
    assert seen >= {
        "a commit of shop",
        "a publish of shop",
        "the cursor of shop",
        "the moment before a commit of shop",
    }


async def test_services_are_as_they_were_afterwards() -> None:
    shop = Shop()
    before = app_of(shop.shop).opened.ports.store_url
    await assert_survives_crashes(shop.scenario, shop.shop, every=10)
    assert app_of(shop.shop).opened.ports.store_url == before
    async with Harness(shop.shop) as harness:
        await shop.scenario(harness)
        assert len(await harness.published(shop.issued)) == 3

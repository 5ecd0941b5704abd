"""Six services together, on days on which half of all requests to vendors do not simply work: whatever happens, the money adds up
with the vendors' own books, no night is sold twice, and no key outlives its stay."""

from __future__ import annotations

import random

import pytest

from melmastoon.billing import billing
from melmastoon.billing.accounts import balance
from melmastoon.billing.stay import post_extra
from melmastoon.facts.billing import ChargePosted, FolioClosed, RefundPosted
from melmastoon.facts.house import Rail
from melmastoon.facts.inventory import AllocationCommitted
from melmastoon.facts.payment import CashReconciled, IntentCaptured, IntentRefunded
from melmastoon.housekeeping import housekeeping
from melmastoon.inventory import inventory
from melmastoon.lock_integration import lock_integration
from melmastoon.payment import payment
from melmastoon.payment.cash import reconcile_cash
from melmastoon.payment.finance import queue, retry_refund
from melmastoon.pricing import pricing
from melmastoon.pricing.commands import publish_rate_plan
from melmastoon.vendors.weather import Seeded
from melmastoon.vendors.world import World, pretending
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import (
    cancelled,
    check_in_started,
    check_out_started,
    confirmed,
    dates_changed,
    held,
    no_show,
    room,
    rows,
)

SERVICES = (inventory, pricing, payment, billing, lock_integration, housekeeping)
BOOKINGS = 8
ROOMS = 6
RAILS: tuple[Rail, ...] = ("card", "paypal", "mfs", "cash_pending")


class Reception:
    """Stands for reservation and the front desk: says what they would, as far as the other services have answered."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self._harness = harness
        self._chance = random.Random(seed)
        self.gone: set[str] = set()
        """Bookings whose guest may open nothing any more."""

    async def stay(self, booking_id: str) -> None:
        """One booking, from its hold to one of its ends."""
        rail = self._chance.choice(RAILS)
        await self._hear(held(booking_id, rail=rail))
        await self._wait()
        if not await self._is_paid(booking_id):
            self.gone.add(booking_id)
            return await self._hear(cancelled(booking_id, reason="payment_failed", refund=0))
        await self._hear(confirmed(booking_id, cash=rail == "cash_pending"))
        if self._chance.random() < 0.5:
            last = self._chance.choice((2, 4, 5))
            await self._hear(dates_changed(booking_id, first=1, last=last, change_id=f"c-{booking_id}"))
        end = self._chance.choice(("cancel", "no_show", "check_out", "check_out", "stay"))
        if end in ("cancel", "no_show"):
            self.gone.add(booking_id)
            refund = self._chance.choice((0, 5_000, 99_999))
            return await self._hear(cancelled(booking_id, refund=refund) if end == "cancel" else no_show(booking_id))
        await self._reconcile(booking_id)
        await self._hear(check_in_started(booking_id))
        if self._chance.random() < 0.5:
            async with billing.transaction("t1") as tx:
                await post_extra(tx, booking_id, line_id=f"bar-{booking_id}", amount_cents=700)
        if end == "check_out":
            self.gone.add(booking_id)
            await self._leave(booking_id)
        return None

    async def _leave(self, booking_id: str) -> None:
        for attempt in (1, 2, 3, 4):
            await self._hear(check_out_started(booking_id, attempt=attempt))
            await self._hear(check_out_started(booking_id, attempt=attempt, asks="key"))
            await self._wait()
            if booking_id in {e.data.booking_id for e in await self._harness.published(FolioClosed)}:
                return
            await self._reconcile(booking_id)

    async def _reconcile(self, booking_id: str) -> None:
        async with payment.transaction("t1") as tx:
            await reconcile_cash(tx, booking_id, staff_id="s1")
        await self._harness.settled()

    async def _is_paid(self, booking_id: str) -> bool:
        return booking_id in {e.data.booking_id for e in await self._harness.published(IntentCaptured)}

    async def _hear(self, fact: object) -> None:
        await self._harness.publish(fact)
        await self._harness.settled()

    async def _wait(self) -> None:
        """Long enough for whatever is tried again."""
        for _ in range(4):
            await self._harness.advance(60)

    async def rest(self) -> None:
        """Finance clears its queue, and everything that is tried again comes to its end."""
        for _ in range(12):
            await self._harness.advance(300)
        for _ in range(4):
            async with payment.transaction("t1") as tx:
                waiting = await queue(tx)
            for one in waiting:
                await retry_refund("t1", one.refund_id)
        await self._harness.settled()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_vendors_do_money_rooms_and_keys_add_up(seed: int) -> None:
    with pretending(World(weather=Seeded(seed=seed, faults=0.5))) as outside:
        async with Harness(*SERVICES) as h:
            async with pricing.transaction("t1") as tx:
                await publish_rate_plan(tx, "bar", property_id="p1", room_type="double", night_cents=9_000)
            for number in range(ROOMS):
                await h.publish(room(f"r{number}"))
            await h.settled()
            reception = Reception(h, seed)
            for number in range(BOOKINGS):
                await reception.stay(f"b{number}")
            await reception.rest()
            await _check_money(h, outside)
            await _check_rooms(h)
            _check_keys(outside, reception.gone)
            for service in SERVICES:
                assert [event.reason for event in await h.held(service)] == []


async def _check_money(h: Harness, outside: World) -> None:
    """The vendors' books, what payment said, and the folios, for each booking."""
    cash = {e.data.intent_id for e in await h.published(CashReconciled)}
    at_vendors = outside.ledger.charged("t1")
    for booking_id in (f"b{number}" for number in range(BOOKINGS)):
        taken = [e.data for e in await h.published(IntentCaptured) if e.data.booking_id == booking_id]
        counted = sum(e.data.amount_cents for e in await h.published(CashReconciled) if e.data.booking_id == booking_id)
        given = [e.data for e in await h.published(IntentRefunded) if e.data.booking_id == booking_id]
        moved = sum(one.amount_cents for one in taken if one.rail != "cash_pending")
        moved -= sum(one.amount_cents for one in given if one.intent_id not in cash)
        assert at_vendors.get(booking_id, 0) == moved
        paid_back_in_cash = sum(one.amount_cents for one in given if one.intent_id in cash)
        charges = sum(e.data.amount_cents for e in await h.published(ChargePosted) if e.data.booking_id == booking_id)
        refunds = sum(e.data.amount_cents for e in await h.published(RefundPosted) if e.data.booking_id == booking_id)
        async with billing.transaction("t1") as tx:
            still_open = await balance(tx, booking_id)
        assert charges - refunds == moved + counted - paid_back_in_cash + still_open
        if booking_id in {e.data.booking_id for e in await h.published(FolioClosed)}:
            assert still_open == 0


async def _check_rooms(h: Harness) -> None:
    nights = [(str(r), str(n)) for r, n in await rows(inventory, "SELECT room_id, night FROM nights")]
    assert len(nights) == len(set(nights))
    sold = await rows(inventory, "SELECT DISTINCT booking_id FROM nights")
    alive = await rows(inventory, "SELECT booking_id FROM allocations WHERE state IN ('committed', 'stayed')")
    assert sorted(map(str, sold)) == sorted(map(str, alive))
    assert await h.published(AllocationCommitted)


def _check_keys(outside: World, gone: set[str]) -> None:
    assert gone & outside.ledger.opening("t1").keys() == set()

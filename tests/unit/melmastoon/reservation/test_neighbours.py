"""The sagas among the services that really answer them: nobody is spoken for but property, which adds the rooms."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date
from typing import Concatenate, ParamSpec

from msgspec.structs import replace

from melmastoon.billing import billing
from melmastoon.billing.stay import post_extra
from melmastoon.facts.billing import ChargePosted, FolioClosed, RefundPosted
from melmastoon.facts.housekeeping import TaskCreated
from melmastoon.facts.inventory import AllocationReleased
from melmastoon.facts.lock_integration import KeyRevoked, KeyUpdated
from melmastoon.facts.payment import IntentRefunded
from melmastoon.facts.property import RoomAdded
from melmastoon.facts.reservation import BookingHeld, CheckedIn, CheckedOut
from melmastoon.housekeeping import housekeeping
from melmastoon.inventory import inventory
from melmastoon.lock_integration import lock_integration
from melmastoon.lock_integration.desk import issue_manually, revoke_manually
from melmastoon.notification import notification
from melmastoon.payment import payment
from melmastoon.pricing import pricing
from melmastoon.reservation import desk, reservation
from melmastoon.reservation.commands import cancel, change_dates, check_in, check_out, extend_stay, hold
from melmastoon.vendors.weather import Scripted, Weather
from melmastoon.vendors.world import World, pretending
from posthouse import Tx
from posthouse.app import app_of
from posthouse.testing import Harness
from tests.unit.melmastoon.reservation.house import ARRIVAL, House, wanted

P = ParamSpec("P")

ALL = (reservation, inventory, pricing, billing, payment, lock_integration, notification, housekeeping)


class Street(House):
    """A house with its neighbours at work."""

    async def asked(
        self, command: Callable[Concatenate[Tx, P], Awaitable[bool]], *given: P.args, **more: P.kwargs
    ) -> None:
        """One request, and everything that follows from it."""
        async with reservation.transaction("t1") as tx:
            assert await command(tx, *given, **more)
        await self.harness.settled()

    async def sagas(self) -> Counter[tuple[str, str]]:
        return Counter([(row.saga, row.status) async for row in app_of(reservation).sagas.find()])


@asynccontextmanager
async def open_street(*rooms: str, weather: Weather | None = None) -> AsyncIterator[Street]:
    with pretending(World(weather=weather)):
        async with Harness(*ALL) as harness:
            street = Street(harness)
            for room_id in rooms:
                await street.hears(RoomAdded(room_id=room_id, property_id="p1", room_type="double", number=room_id))
            yield street
            await harness.settled()
            for service in ALL:
                assert await harness.held(service) == []


async def test_a_stay_from_pay_to_receipt() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted())
        card = await street.card()
        assert (card.booking.status, card.booking.room_id, card.key) == ("confirmed", "r1", "issued")
        await street.asked(check_in, "b1", today=ARRIVAL)
        assert (await street.booking()).status == "checked_in"
        await street.asked(check_out, "b1")
        card = await street.card()
        assert (card.booking.status, card.key) == ("checked_out", "revoked")
        assert await street.sagas() == {(name, "completed"): 1 for name in ("booking", "check_in", "check_out")}
        assert (
            len(await street.said(CheckedIn))
            == len(await street.said(CheckedOut))
            == len(await street.said(FolioClosed))
            == 1
        )


async def test_the_last_room_is_one_bookings() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted("b1"))
        await street.asked(hold, wanted("b2"))
        assert (await street.booking("b1")).status == "confirmed"
        lost = await street.booking("b2")
        assert (lost.status, lost.reason) == ("cancelled", "no_room")
        assert await street.sagas() == {("booking", "completed"): 1, ("booking", "compensated"): 1}


async def test_a_declined_card_gives_the_room_back() -> None:
    async with open_street("r1", weather=Scripted(declined=frozenset({"t1:int-b1-stay"}))) as street:
        await street.asked(hold, wanted("b1"))
        lost = await street.booking("b1")
        assert (lost.status, lost.reason) == ("cancelled", "payment_failed")
        assert await street.saga_status("booking") == "compensated"
        assert len(await street.said(AllocationReleased)) == 1
        await street.asked(hold, wanted("b2"))
        assert (await street.booking("b2")).status == "confirmed"


async def test_a_lock_vendor_that_is_down_makes_the_desk_cut_a_key_and_the_guest_is_in() -> None:
    down = Scripted(moods={"put": ["error"] * 100, "find": ["error"] * 100})
    async with open_street("r1", weather=down) as street:
        await street.asked(hold, wanted())
        assert (await street.card()).by_hand == "issue the key by hand: vendor_error"
        await street.asked(check_in, "b1", today=ARRIVAL)
        await street.waits(30.0)
        assert (await street.card()).missing == "key"
        await issue_manually("t1", "b1")
        await street.harness.settled()
        card = await street.card()
        assert (card.booking.status, card.key_by_hand, card.wants_attention) == ("checked_in", True, False)


async def test_a_declined_balance_is_pending_without_a_key_and_is_taken_after_one_click() -> None:
    declined = frozenset({"t1:int-b1-balance-inv-b1-1"})
    async with open_street("r1", weather=Scripted(declined=declined)) as street:
        await street.asked(hold, wanted())
        await street.asked(check_in, "b1", today=ARRIVAL)
        async with billing.transaction("t1") as tx:
            await post_extra(tx, "b1", line_id="minibar-1", amount_cents=900)
        await street.harness.settled()
        await street.asked(check_out, "b1")
        card = await street.card()
        assert (card.booking.status, card.key, card.missing) == ("checked_out_balance_pending", "revoked", "balance")
        assert await street.said(FolioClosed) == []
        await desk.retry_check_out("t1", "b1", by="s1")
        await street.harness.settled()
        assert (await street.booking()).status == "checked_out"
        assert len(await street.said(FolioClosed)) == 1


async def test_a_cancelled_booking_leaves_no_key_no_room_and_no_money_behind() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted())
        await street.asked(cancel, "b1", today=date(2027, 3, 1))
        card = await street.card()
        assert (card.booking.status, card.key, card.wants_attention) == ("cancelled", "revoked", False)
        for fact in (AllocationReleased, IntentRefunded, RefundPosted, KeyRevoked):
            assert len(await street.said(fact)) == 1
        await street.asked(hold, wanted("b2"))
        assert (await street.booking("b2")).status == "confirmed"


async def test_new_dates_bring_new_nights_a_new_price_and_a_key_that_fits() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted())
        longer = date(2027, 3, 15)
        await street.asked(change_dates, "b1", change_id="c1", check_in=ARRIVAL, check_out=longer)
        booking = await street.booking()
        assert (booking.status, booking.check_out, booking.amount_cents) == ("confirmed", longer, 50_000)
        assert await street.sagas() == {("booking", "completed"): 1, ("date_change", "completed"): 1}
        assert len(await street.said(KeyUpdated)) == 1


async def test_a_guest_who_is_in_stays_longer_with_a_key_a_bill_and_a_room_that_fit() -> None:
    """Of two rooms the guest's own is sold for the night after: the guest moves."""
    async with open_street("r1", "r2") as street:
        await street.asked(hold, wanted("b1"))
        await street.asked(hold, _at(date(2027, 3, 13), date(2027, 3, 15)))
        await street.asked(check_in, "b1", today=ARRIVAL)
        longer = date(2027, 3, 14)
        await street.asked(extend_stay, "b1", change_id="c1", check_out=longer)
        booking = await street.booking()
        assert (booking.status, booking.room_id, booking.check_out) == ("checked_in", "r2", longer)
        charges = [charge for charge in await street.said(ChargePosted) if isinstance(charge, ChargePosted)]
        assert [charge.amount_cents for charge in charges if charge.kind == "delta"] == [10_000]
        (key,) = [key for key in await street.said(KeyUpdated) if isinstance(key, KeyUpdated) and key.change_id]
        assert (key.room_id, key.check_out) == ("r2", longer)
        (task,) = await street.said(TaskCreated)
        assert isinstance(task, TaskCreated)
        assert task.room_id == "r1"
        await street.asked(check_out, "b1")
        assert (await street.booking()).status == "checked_out"
        assert len(await street.said(TaskCreated)) == 2


async def test_dates_that_are_taken_are_not_changed() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted("b1"))
        later = (date(2027, 3, 13), date(2027, 3, 15))
        await street.asked(hold, _at(*later))
        await street.asked(change_dates, "b1", change_id="c1", check_in=ARRIVAL, check_out=later[1])
        booking = await street.booking("b1")
        assert (booking.status, booking.check_out) == ("confirmed", later[0])
        assert (await street.saga("date_change", "c1")).row.status == "compensated"


async def test_a_guest_whose_key_was_revoked_for_safety_checks_out_all_the_same() -> None:
    async with open_street("r1") as street:
        await street.asked(hold, wanted())
        await street.asked(check_in, "b1", today=ARRIVAL)
        await revoke_manually("t1", "b1")
        await street.harness.settled()
        await street.asked(check_out, "b1")
        assert (await street.booking()).status == "checked_out"


def _at(check_in: date, check_out: date) -> BookingHeld:
    return replace(wanted("b2"), check_in=check_in, check_out=check_out, amount_cents=20_000, refundable_cents=0)

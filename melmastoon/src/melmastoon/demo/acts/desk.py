"""What happens at the front desk: guests come in, take extras and leave, and what vendors did not do is done by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

from melmastoon.billing.stay import post_extra
from melmastoon.demo.cast import Booking
from melmastoon.demo.script import Do
from melmastoon.demo.stage import Played, Stage
from melmastoon.facts.billing import billing
from melmastoon.facts.payment import payment
from melmastoon.facts.reservation import reservation
from melmastoon.lock_integration import desk as keys
from melmastoon.payment.cash import reconcile_cash
from melmastoon.reservation import commands, desk

EXTRA_CENTS = 1_800


async def count_cash(stage: Stage, booking: Booking) -> bool:
    """The guest brings what was promised."""
    if (await stage.standing(booking)).status != "confirmed_cash_pending":
        return False
    return await _count(booking)


async def _count(booking: Booking) -> bool:
    async with payment.transaction(booking.house.tenant) as tx:
        return await reconcile_cash(tx, booking.id, staff_id=f"front_desk-{booking.house.property_id}") > 0


async def no_show(stage: Stage, booking: Booking) -> bool:
    if not (await stage.standing(booking)).status.startswith("confirmed"):
        return False
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.no_show(tx, booking.id, today=stage.today)


async def check_in(stage: Stage, booking: Booking) -> bool:
    if (await stage.standing(booking)).status != "confirmed":
        return False
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.check_in(tx, booking.id, today=stage.today)


async def click_again(stage: Stage, booking: Booking) -> bool:
    """Something is missing: one click asks for it again."""
    if (await stage.standing(booking)).status != "check_in_partial":
        return False
    await desk.retry_check_in(booking.house.tenant, booking.id, by="desk")
    return True


async def cut_key(stage: Stage, booking: Booking) -> bool:
    """The vendor gives no key: the desk cuts one."""
    standing = await stage.standing(booking)
    if standing.status != "check_in_partial" or "key" not in standing.missing:
        return False
    await keys.issue_manually(booking.house.tenant, booking.id)
    return True


async def call_off(stage: Stage, booking: Booking) -> bool:
    """Without a key the guest does not stay, and cancels at the desk."""
    if (await stage.standing(booking)).status != "check_in_partial":
        return False
    await desk.call_off_check_in(booking.house.tenant, booking.id, by="desk")
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.cancel(tx, booking.id, today=stage.today)


async def call_off_for_now(stage: Stage, booking: Booking) -> bool:
    """Without a key the guest goes for a walk, and comes back for another check-in."""
    if (await stage.standing(booking)).status != "check_in_partial":
        return False
    await desk.call_off_check_in(booking.house.tenant, booking.id, by="desk")
    return True


async def stay_on(stage: Stage, booking: Booking) -> bool:
    """The guest is in, and likes it: one night more."""
    standing = await stage.standing(booking)
    if standing.status != "checked_in":
        return False
    later = date.fromisoformat(standing.check_out) + timedelta(days=1)
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.extend_stay(tx, booking.id, change_id=f"chg-{booking.id}", check_out=later)


async def extra(stage: Stage, booking: Booking) -> bool:
    """Tea and laundry."""
    if (await stage.standing(booking)).status != "checked_in":
        return False
    async with billing.transaction(booking.house.tenant) as tx:
        await post_extra(tx, booking.id, line_id=f"extra-{booking.id}", amount_cents=EXTRA_CENTS)
    return True


async def suspend_key(stage: Stage, booking: Booking) -> bool:
    """A dispute: the door stays closed for the time being."""
    if (await stage.standing(booking)).status != "checked_in":
        return False
    await keys.suspend(booking.house.tenant, booking.id, reason="dispute")
    return True


async def check_out(stage: Stage, booking: Booking) -> bool:
    """The guest leaves, on the day that the booking says by now."""
    standing = await stage.standing(booking)
    if standing.status != "checked_in" or standing.check_out > stage.today.isoformat():
        return False
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.check_out(tx, booking.id)


async def revoke_by_hand(stage: Stage, booking: Booking) -> bool:
    """The vendor did not end the key: the desk does."""
    standing = await stage.standing(booking)
    if standing.status != "check_out_started" or "key" not in standing.missing:
        return False
    await keys.revoke_manually(booking.house.tenant, booking.id)
    return True


async def settle_balance(stage: Stage, booking: Booking) -> bool:
    """The guest who left with a balance is asked once more; whoever pays cash brings it."""
    if (await stage.standing(booking)).status != "checked_out_balance_pending":
        return False
    if booking.rail == "cash_pending":
        return await _count(booking)
    await desk.retry_check_out(booking.house.tenant, booking.id, by="desk")
    return True


DESK: Mapping[Do, Played] = {
    "count_cash": count_cash,
    "no_show": no_show,
    "check_in": check_in,
    "click_again": click_again,
    "cut_key": cut_key,
    "call_off": call_off,
    "call_off_for_now": call_off_for_now,
    "come_back": check_in,
    "stay_on": stay_on,
    "extra": extra,
    "suspend_key": suspend_key,
    "check_out": check_out,
    "revoke_by_hand": revoke_by_hand,
    "settle_balance": settle_balance,
}

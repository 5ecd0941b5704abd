"""What guests do before they arrive."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

import msgspec

from melmastoon.demo.cast import Booking
from melmastoon.demo.script import Do
from melmastoon.demo.stage import Played, Stage
from melmastoon.facts.house import CURRENCY, Guest
from melmastoon.facts.inventory import inventory
from melmastoon.facts.payment import payment
from melmastoon.facts.reservation import BookingHeld, reservation
from melmastoon.inventory.commands import activate_stop_sell, clear_stop_sell
from melmastoon.payment import finance
from melmastoon.reservation import commands, desk

LOCALES = ("en", "fa", "ps")


def guest_of(booking: Booking) -> Guest:
    name = booking.guest
    return Guest(
        guest_id=f"guest-{name[-4:]}",
        name=name,
        email=f"{name.replace(' ', '.').lower()}@example.com",
        phone=f"+937000{name[-4:]}",
        locale=LOCALES[int(booking.id[-4:]) % len(LOCALES)],
    )


async def hold(stage: Stage, booking: Booking) -> bool:
    """Press Pay."""
    wanted = BookingHeld(
        booking_id=booking.id,
        property_id=booking.house.property_id,
        room_type=booking.room_type,
        check_in=stage.day(booking.arrives),
        check_out=stage.day(booking.leaves),
        guest=guest_of(booking),
        rail=booking.rail,
        amount_cents=booking.cents,
        currency=CURRENCY,
        refundable_cents=booking.cents * 4 // 5,
    )
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.hold(tx, wanted)


async def hold_while_inventory_is_down(stage: Stage, booking: Booking) -> bool:
    """Nobody commits a room within 30 seconds."""
    async with stage.world.away("inventory"):
        await hold(stage, booking)
        await stage.world.let_pass(31.0)
    return True


async def hold_while_payment_is_down(stage: Stage, booking: Booking) -> bool:
    """There is a room, and nobody takes the money within ten minutes."""
    async with stage.world.away("payment"):
        await hold(stage, booking)
        await stage.world.let_pass(601.0)
    return True


async def hold_and_give_up(stage: Stage, booking: Booking) -> bool:
    """The payment page shows nothing, and the guest leaves it."""
    async with stage.world.away("payment"):
        await hold(stage, booking)
        await stage.world.let_pass(90.0)
        if (await stage.standing(booking)).status == "held":
            await desk.abandon(booking.house.tenant, booking.id)
    return True


async def hold_during_stop_sell(stage: Stage, booking: Booking) -> bool:
    """The revenue manager sells no more of the first night, until the guest has heard it."""
    which = (booking.house.property_id, booking.room_type, stage.day(booking.arrives))
    async with inventory.transaction(booking.house.tenant) as tx:
        await activate_stop_sell(tx, *which)
    await hold(stage, booking)
    await stage.world.settle()
    async with inventory.transaction(booking.house.tenant) as tx:
        return await clear_stop_sell(tx, *which)


async def change_guest(stage: Stage, booking: Booking) -> bool:
    """Another name, and a quiet room."""
    if not (await stage.standing(booking)).status.startswith("confirmed"):
        return False
    guest = guest_of(booking)
    other = msgspec.structs.replace(guest, name=f"{guest.name} jan")
    async with reservation.transaction(booking.house.tenant) as tx:
        await commands.change_guest(tx, booking.id, request_id=f"req-{booking.id}-guest", guest=other)
        return await commands.note_requests(tx, booking.id, request_id=f"req-{booking.id}-words", words="a quiet room")


async def cancel(stage: Stage, booking: Booking) -> bool:
    if not (await stage.standing(booking)).status.startswith("confirmed"):
        return False
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.cancel(tx, booking.id, today=stage.today)


async def finance_retries(stage: Stage, booking: Booking) -> bool:
    """What the vendor did not refund is asked for once more."""
    async with payment.transaction(booking.house.tenant) as tx:
        waiting = [refund for refund in await finance.queue(tx) if refund.booking_id == booking.id]
    for refund in waiting:
        await finance.retry_refund(booking.house.tenant, refund.refund_id)
    return bool(waiting)


async def longer(stage: Stage, booking: Booking) -> bool:
    return await _change(stage, booking, 1)


async def shorter(stage: Stage, booking: Booking) -> bool:
    return await _change(stage, booking, -1)


async def _change(stage: Stage, booking: Booking, nights: int) -> bool:
    standing = await stage.standing(booking)
    if not standing.status.startswith("confirmed"):
        return False
    async with reservation.transaction(booking.house.tenant) as tx:
        return await commands.change_dates(
            tx,
            booking.id,
            change_id=f"chg-{booking.id}",
            check_in=date.fromisoformat(standing.check_in),
            check_out=date.fromisoformat(standing.check_out) + timedelta(days=nights),
        )


async def retry_change(stage: Stage, booking: Booking) -> bool:
    """One click of the desk, while something of the change is missing."""
    if not (await stage.standing(booking)).change_missing:
        return False
    await desk.retry_date_change(booking.house.tenant, f"chg-{booking.id}", by="desk")
    return True


BOOKING: Mapping[Do, Played] = {
    "hold": hold,
    "hold_while_inventory_is_down": hold_while_inventory_is_down,
    "hold_while_payment_is_down": hold_while_payment_is_down,
    "hold_and_give_up": hold_and_give_up,
    "hold_during_stop_sell": hold_during_stop_sell,
    "change_guest": change_guest,
    "cancel": cancel,
    "finance_retries": finance_retries,
    "longer": longer,
    "shorter": shorter,
    "retry_change": retry_change,
}

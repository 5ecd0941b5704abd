"""Prices that are offered in the booking funnel, for a while; and what a booking was sold for."""

from __future__ import annotations

from datetime import date

import msgspec

from melmastoon.facts.house import CURRENCY
from melmastoon.facts.pricing import DeltaApplied, QuoteExpired, pricing
from melmastoon.facts.reservation import BookingHeld
from melmastoon.pace import seconds
from melmastoon.pricing.deltas import apply_waiting, hold_booking
from melmastoon.pricing.rates import nights, prices, spread
from melmastoon.tables import run
from posthouse import Event, Reject, Tx, app_of

HOLDS = 600.0
"""Seconds of the house for which a quote holds."""

QUOTE = """
INSERT INTO quotes (tenant, quote_id, property_id, room_type, check_in, check_out, amount_cents, currency, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
READ = "SELECT amount_cents, currency FROM quotes WHERE tenant = ? AND quote_id = ?"
USE = "UPDATE quotes SET used_by = ? WHERE tenant = ? AND quote_id = ? AND used_by = ''"
SNAPSHOT = """
INSERT INTO snapshots (tenant, booking_id, property_id, room_type, currency) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
NIGHT = "INSERT INTO snapshot_nights (tenant, booking_id, night, night_cents) VALUES (?, ?, ?, ?)"


class Quote(msgspec.Struct, frozen=True, array_like=True):
    """What was offered."""

    amount_cents: int
    currency: str


def quote_of(booking_id: str) -> str:
    """The quote that a booking is held with."""
    return f"quo-{booking_id}"


async def quote(tx: Tx, quote_id: str, *, property_id: str, room_type: str, check_in: date, check_out: date) -> Quote:
    """Offer a price. It holds for ten minutes, then `quote.expired` says that it does no more, unless a booking was held
    with it. The same id again is the same quote. Raises Reject when a night cannot be bought."""
    window = nights(check_in, check_out)
    found = await prices(tx, property_id, room_type, window)
    if not window or len(found) < len(window):
        raise Reject(f"{room_type} of {property_id} has no price for every night from {check_in} to {check_out}")
    lasts = seconds(HOLDS)
    kind = (property_id, room_type, check_in.isoformat(), check_out.isoformat())
    until = int(app_of(pricing).clock.now() + lasts)
    done = await run(tx, QUOTE, tx.tenant, quote_id, *kind, sum(found.values()), CURRENCY, until)
    if done.rowcount:
        expiry = QuoteExpired(quote_id=quote_id, property_id=property_id, room_type=room_type)
        tx.publish(expiry, after=lasts, timer=_timer(quote_id), idempotency_key=f"pricing:expire:{quote_id}")
    return msgspec.convert((await run(tx, READ, tx.tenant, quote_id)).one(), Quote, strict=False)


@pricing.on(BookingHeld, publishes=[DeltaApplied])
async def held(event: Event[BookingHeld], tx: Tx) -> None:
    """Record what the booking was sold for; its quote expires no more. Changes of dates that came before it are priced."""
    booking = event.data
    await hold_booking(tx, booking.booking_id)
    await tx.cancel(_timer(quote_of(booking.booking_id)))
    await run(tx, USE, booking.booking_id, tx.tenant, quote_of(booking.booking_id))
    kind = (booking.property_id, booking.room_type, booking.currency)
    if (await run(tx, SNAPSHOT, tx.tenant, booking.booking_id, *kind)).rowcount == 0:
        return
    for night, cents in spread(booking.amount_cents, nights(booking.check_in, booking.check_out)).items():
        await run(tx, NIGHT, tx.tenant, booking.booking_id, night, cents)
    await apply_waiting(tx, booking.booking_id)


def _timer(quote_id: str) -> str:
    return f"quote {quote_id}"

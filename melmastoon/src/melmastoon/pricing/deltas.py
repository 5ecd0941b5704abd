"""What a change of dates costs, once the nights are swapped. A swap may be heard of before the booking is: it waits."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.pricing import DeltaApplied, pricing
from melmastoon.pricing.rates import delta, nights, prices
from melmastoon.tables import run
from posthouse import Event, Tx

KNOW = "INSERT INTO known_bookings (tenant, booking_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
HOLD = "SELECT 1 FROM known_bookings WHERE tenant = ? AND booking_id = ? FOR UPDATE"
ADD = """
INSERT INTO changes (tenant, change_id, booking_id, check_in, check_out, heard)
SELECT ?, ?, ?, ?, ?, COUNT(*) FROM changes WHERE tenant = ? AND booking_id = ?
ON CONFLICT DO NOTHING"""
# Changes that have no price yet, as they were heard of.
WAITING = """
SELECT change_id, check_in, check_out FROM changes WHERE tenant = ? AND booking_id = ? AND delta_cents IS NULL ORDER BY heard"""
SNAPSHOT = "SELECT property_id, room_type, currency FROM snapshots WHERE tenant = ? AND booking_id = ?"
BOOKED = "SELECT night, night_cents FROM snapshot_nights WHERE tenant = ? AND booking_id = ?"
FORGET = "DELETE FROM snapshot_nights WHERE tenant = ? AND booking_id = ?"
NIGHT = "INSERT INTO snapshot_nights (tenant, booking_id, night, night_cents) VALUES (?, ?, ?, ?)"
PRICED = "UPDATE changes SET delta_cents = ? WHERE tenant = ? AND change_id = ?"


async def hold_booking(tx: Tx, booking_id: str) -> None:
    """Let nobody else work on this booking until the transaction ends, whether or not it was heard of before."""
    await run(tx, KNOW, tx.tenant, booking_id)
    await run(tx, HOLD, tx.tenant, booking_id)


@pricing.on(AllocationReallocated, publishes=[DeltaApplied])
async def reallocated(event: Event[AllocationReallocated], tx: Tx) -> None:
    """The nights are swapped: say what that costs, more or less or nothing."""
    swap = event.data
    await hold_booking(tx, swap.booking_id)
    window = (swap.check_in.isoformat(), swap.check_out.isoformat())
    await run(tx, ADD, tx.tenant, swap.change_id, swap.booking_id, *window, tx.tenant, swap.booking_id)
    await apply_waiting(tx, swap.booking_id)


async def apply_waiting(tx: Tx, booking_id: str) -> None:
    """Price every change that has no price yet, if it is known what the booking was sold for."""
    snapshot = await run(tx, SNAPSHOT, tx.tenant, booking_id)
    if not snapshot:
        return
    property_id, room_type, currency = map(str, snapshot.one())
    for change_id, check_in, check_out in await run(tx, WAITING, tx.tenant, booking_id):
        window = nights(date.fromisoformat(str(check_in)), date.fromisoformat(str(check_out)))
        booked = {str(night): int(str(cents)) for night, cents in await run(tx, BOOKED, tx.tenant, booking_id)}
        cents, after = delta(booked, window, await prices(tx, property_id, room_type, window))
        await run(tx, FORGET, tx.tenant, booking_id)
        for night, price in after.items():
            await run(tx, NIGHT, tx.tenant, booking_id, night, price)
        await run(tx, PRICED, cents, tx.tenant, str(change_id))
        applied = DeltaApplied(booking_id=booking_id, change_id=str(change_id), delta_cents=cents, currency=currency)
        tx.publish(applied, idempotency_key=f"pricing:delta:{change_id}")

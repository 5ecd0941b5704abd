"""When money is to be taken: for the stay once a booking is held and its room committed, whichever is heard of second; for the
difference of a change of dates; for what is open at check-out."""

from __future__ import annotations

from melmastoon.facts.billing import ChargePosted, FolioClosed, InvoiceIssued
from melmastoon.facts.inventory import AllocationCommitted
from melmastoon.facts.payment import IntentCreated, payment
from melmastoon.facts.reservation import BookingHeld
from melmastoon.payment.intents import create, intents, move, payer
from melmastoon.payment.refunds import drop_promises
from melmastoon.tables import run
from posthouse import Event, Tx

HELD = "UPDATE payers SET rail = ?, amount_cents = ?, currency = ? WHERE tenant = ? AND booking_id = ?"
COMMITTED = "UPDATE payers SET committed = 1 WHERE tenant = ? AND booking_id = ?"


@payment.on(BookingHeld, publishes=[IntentCreated])
async def held(event: Event[BookingHeld], tx: Tx) -> None:
    booking = event.data
    await payer(tx, booking.booking_id)
    terms = (booking.rail, booking.amount_cents, booking.currency)
    await run(tx, HELD, *terms, tx.tenant, booking.booking_id)
    await _ask_for_the_stay(tx, booking.booking_id)


@payment.on(AllocationCommitted, publishes=[IntentCreated])
async def committed(event: Event[AllocationCommitted], tx: Tx) -> None:
    await payer(tx, event.data.booking_id)
    await run(tx, COMMITTED, tx.tenant, event.data.booking_id)
    await _ask_for_the_stay(tx, event.data.booking_id)


async def _ask_for_the_stay(tx: Tx, booking_id: str) -> None:
    who = await payer(tx, booking_id)
    if who.committed:
        await create(tx, who, "stay", booking_id, who.amount_cents)


@payment.on(ChargePosted, publishes=[IntentCreated])
async def charge_posted(event: Event[ChargePosted], tx: Tx) -> None:
    """The difference of a change of dates is taken at once. Cash has asked for itself already, and comes to the desk."""
    charge = event.data
    if charge.kind != "delta":
        return
    who = await payer(tx, charge.booking_id)
    if who.rail != "cash_pending":
        await create(tx, who, "delta", charge.change_id, charge.amount_cents)


@payment.on(InvoiceIssued, publishes=[IntentCreated])
async def invoice_issued(event: Event[InvoiceIssued], tx: Tx) -> None:
    """What is open at check-out is taken as one; cash that was promised for a part of it is part of it."""
    invoice = event.data
    if invoice.balance_cents <= 0:
        return
    who = await payer(tx, invoice.booking_id)
    for intent in await intents(tx, invoice.booking_id):
        if intent.purpose != "stay":
            await move(tx, intent.intent_id, "promised", "dropped")
    await create(tx, who, "balance", invoice.invoice_id, invoice.balance_cents)


@payment.on(FolioClosed)
async def folio_closed(event: Event[FolioClosed], tx: Tx) -> None:
    """Everything is settled: no cash is waited for."""
    await payer(tx, event.data.booking_id)
    await drop_promises(tx, event.data.booking_id)

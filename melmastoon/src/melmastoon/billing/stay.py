"""What the front desk does: the guest comes, takes extras, and leaves."""

from __future__ import annotations

from functools import partial

from melmastoon.billing.accounts import account
from melmastoon.billing.folio import close, extra, open_for
from melmastoon.billing.folios import folios
from melmastoon.billing.invoices import latest, settle
from melmastoon.billing.money import SETTLES, charge_deltas
from melmastoon.facts.billing import ChargePosted, FolioOpened, billing
from melmastoon.facts.reservation import BookingConfirmed, CheckInStarted, CheckOutStarted
from melmastoon.tables import run
from posthouse import Event, Reject, Tx

CONFIRM = "UPDATE accounts SET confirmed = 1, cash = ?, currency = ? WHERE tenant = ? AND booking_id = ?"
WANT = "UPDATE accounts SET wanted = ? WHERE tenant = ? AND booking_id = ? AND wanted < ?"


@billing.on(BookingConfirmed, publishes=[ChargePosted])
async def confirmed(event: Event[BookingConfirmed], tx: Tx) -> None:
    """Note the terms. Differences that were heard of before are charged now."""
    booking = event.data
    await account(tx, booking.booking_id, booking.currency)
    await run(tx, CONFIRM, int(booking.cash_pending), booking.currency, tx.tenant, booking.booking_id)
    await charge_deltas(tx, await account(tx, booking.booking_id))


@billing.on(CheckInStarted, publishes=[FolioOpened])
async def check_in_started(event: Event[CheckInStarted], tx: Tx) -> None:
    """Open the folio, and say so to every check-in that asks for it."""
    if event.data.missing and "folio" not in event.data.missing:
        return
    terms = await account(tx, event.data.booking_id)
    await folios.decide(tx, terms.folio_id, partial(open_for, account=terms))


@billing.on(CheckOutStarted, publishes=SETTLES)
async def check_out_started(event: Event[CheckOutStarted], tx: Tx) -> None:
    """Settle the stay: the first attempt, or another one after an invoice did not stand."""
    if event.data.asks != "folio":
        return
    attempt = event.data.attempt
    await account(tx, event.data.booking_id)
    await run(tx, WANT, attempt, tx.tenant, event.data.booking_id, attempt)
    terms = await account(tx, event.data.booking_id)
    if (await folios.load(tx, terms.folio_id)).state.closed:
        await folios.decide(tx, terms.folio_id, partial(close, account=terms))
    else:
        await settle(tx, terms)


async def post_extra(tx: Tx, booking_id: str, *, line_id: str, amount_cents: int) -> None:
    """Charge what a guest takes during the stay. The same line twice is the same line. Raises Reject before check-in, while
    an invoice stands, and after the folio was closed."""
    terms = await account(tx, booking_id)
    invoice = await latest(tx, booking_id)
    known = line_id in (await folios.load(tx, terms.folio_id)).state.lines
    if invoice is not None and invoice.state == "issued" and not known:
        raise Reject(f"an invoice is issued for {booking_id}: extras are charged before check-out")
    await folios.decide(tx, terms.folio_id, partial(extra, account=terms, line_id=line_id, amount_cents=amount_cents))

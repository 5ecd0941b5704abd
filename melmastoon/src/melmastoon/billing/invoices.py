"""How a stay is settled at check-out: an invoice over everything, the rest of the money, and the folio is closed. What does not
work out voids the invoice, and the folio stays open for another attempt."""

from __future__ import annotations

from functools import partial

import msgspec

from melmastoon.billing.accounts import Terms, balance, paid
from melmastoon.billing.folio import close
from melmastoon.billing.folios import folios
from melmastoon.facts.billing import InvoiceIssued, InvoiceVoided
from melmastoon.tables import run
from posthouse import Tx

# The next number of a tenant; numbers are given in the order of commits, without a gap.
NUMBER = """
INSERT INTO invoice_numbers (tenant, last) VALUES (?, 1)
ON CONFLICT (tenant) DO UPDATE SET last = invoice_numbers.last + 1 RETURNING last"""
ADD = """
INSERT INTO invoices (tenant, invoice_id, booking_id, number, attempt, charged_cents, balance_cents, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'issued')"""
LATEST = """
SELECT invoice_id, attempt, state FROM invoices WHERE tenant = ? AND booking_id = ? ORDER BY attempt DESC LIMIT 1"""
BECOME = "UPDATE invoices SET state = ? WHERE tenant = ? AND invoice_id = ? AND state = ?"
VOID = "UPDATE invoices SET state = 'voided' WHERE tenant = ? AND invoice_id = ? AND state <> 'voided'"
ON_THE_WAY = "SELECT 1 FROM deltas WHERE tenant = ? AND booking_id = ? AND state = 'asked' LIMIT 1"


class Invoice(msgspec.Struct, frozen=True, array_like=True):
    """The latest invoice of a booking."""

    invoice_id: str
    attempt: int
    state: str


async def latest(tx: Tx, booking_id: str) -> Invoice | None:
    rows = await run(tx, LATEST, tx.tenant, booking_id)
    return msgspec.convert(rows.one(), Invoice, strict=False) if rows else None


async def settle(tx: Tx, terms: Terms) -> None:
    """Go one step on, if anything that check-out waits for has come. Whatever is heard of money ends here.

    An invoice waits until the stay itself is on the folio and no other money is on its way."""
    folio = (await folios.load(tx, terms.folio_id)).state
    busy = bool(await run(tx, ON_THE_WAY, tx.tenant, terms.booking_id))
    if folio.closed or not terms.wanted or not folio.stay_posted or busy:
        return
    invoice = await latest(tx, terms.booking_id)
    if invoice is None or (invoice.state == "voided" and invoice.attempt < terms.wanted):
        invoice = await _issue(tx, terms)
    if invoice.state == "voided":
        return
    if await balance(tx, terms.booking_id) <= 0:
        await run(tx, BECOME, "paid", tx.tenant, invoice.invoice_id, "issued")
        await folios.decide(tx, terms.folio_id, partial(close, account=terms))
    elif invoice.state == "paid":
        await void(tx, terms, invoice.invoice_id, "more is open than was asked for")


async def note_paid(tx: Tx, invoice_id: str) -> None:
    """The rest of the money has come."""
    await run(tx, BECOME, "paid", tx.tenant, invoice_id, "issued")


async def void(tx: Tx, terms: Terms, invoice_id: str, reason: str) -> None:
    """The invoice does not stand, because what is open could not be taken."""
    if (await folios.load(tx, terms.folio_id)).state.closed:
        return
    if (await run(tx, VOID, tx.tenant, invoice_id)).rowcount:
        gone = InvoiceVoided(invoice_id=invoice_id, folio_id=terms.folio_id, booking_id=terms.booking_id, reason=reason)
        tx.publish(gone, idempotency_key=f"billing:void:{invoice_id}")


async def _issue(tx: Tx, terms: Terms) -> Invoice:
    folio = (await folios.load(tx, terms.folio_id)).state
    open_cents = max(folio.cost_cents - await paid(tx, terms.booking_id), 0)
    number = int(str((await run(tx, NUMBER, tx.tenant)).scalar()))
    issued = InvoiceIssued(
        invoice_id=f"inv-{terms.booking_id}-{terms.wanted}",
        folio_id=terms.folio_id,
        booking_id=terms.booking_id,
        charged_cents=folio.cost_cents,
        balance_cents=open_cents,
        currency=terms.currency,
        number=number,
    )
    values = (issued.invoice_id, terms.booking_id, number, terms.wanted, folio.cost_cents, open_cents)
    await run(tx, ADD, tx.tenant, *values)
    tx.publish(issued, idempotency_key=f"billing:issue:{issued.invoice_id}")
    return Invoice(issued.invoice_id, terms.wanted, "issued")

"""What is heard of money: each of these facts adds a line, a receipt or both, and may be what a check-out waits for."""

from __future__ import annotations

from functools import partial

from melmastoon.billing.accounts import Terms, account, note_receipt
from melmastoon.billing.folio import charge, refund
from melmastoon.billing.folios import folios
from melmastoon.billing.invoices import note_paid, settle, void
from melmastoon.facts.billing import (
    ChargePosted,
    FolioClosed,
    InvoiceIssued,
    InvoiceVoided,
    RefundPosted,
    billing,
)
from melmastoon.facts.payment import CashReconciled, IntentCaptured, IntentCreated, IntentFailed, IntentRefunded
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.tables import run
from posthouse import Event, Tx

DELTA = """
INSERT INTO deltas (tenant, change_id, booking_id, delta_cents, state) VALUES (?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING"""
WAITING = """
SELECT change_id, delta_cents FROM deltas WHERE tenant = ? AND booking_id = ? AND state = 'waiting' ORDER BY change_id"""
BECOME = "UPDATE deltas SET state = ? WHERE tenant = ? AND change_id = ?"

SETTLES = [ChargePosted, InvoiceIssued, InvoiceVoided, FolioClosed]
"""What may follow from money, beside its own line."""


@billing.on(IntentCaptured, publishes=SETTLES)
async def captured(event: Event[IntentCaptured], tx: Tx) -> None:
    """Money came: for the stay, which is charged with it; for a change of dates; for what was open. A promise is none."""
    money = event.data
    if money.rail == "cash_pending":
        return
    terms = await account(tx, money.booking_id, money.currency)
    await note_receipt(tx, money.intent_id, money.booking_id, money.amount_cents)
    if money.purpose == "stay":
        await _charge_stay(tx, terms, money.intent_id, money.amount_cents)
    if money.purpose == "delta":
        await run(tx, BECOME, "settled", tx.tenant, money.reference)
    if money.purpose == "balance":
        await note_paid(tx, money.reference)
    await settle(tx, terms)


@billing.on(CashReconciled, publishes=SETTLES)
async def reconciled(event: Event[CashReconciled], tx: Tx) -> None:
    """Cash came: for the stay, which is charged with it; or for what was on the folio already."""
    cash = event.data
    terms = await account(tx, cash.booking_id, cash.currency)
    await note_receipt(tx, cash.intent_id, cash.booking_id, cash.amount_cents)
    if cash.purpose == "stay":
        await _charge_stay(tx, terms, cash.intent_id, cash.amount_cents)
    await settle(tx, terms)


async def _charge_stay(tx: Tx, terms: Terms, line_id: str, amount_cents: int) -> None:
    line = partial(charge, account=terms, line_id=line_id, kind="stay", amount_cents=amount_cents)
    await folios.decide(tx, terms.folio_id, line)


@billing.on(IntentFailed, publishes=SETTLES)
async def failed(event: Event[IntentFailed], tx: Tx) -> None:
    """Money did not come: a difference stays open until check-out, an invoice does not stand. A refund that failed changes
    nothing here: finance sees to it."""
    money = event.data
    if money.refund or money.purpose == "stay":
        return
    terms = await account(tx, money.booking_id, money.currency)
    if money.purpose == "delta":
        await run(tx, BECOME, "settled", tx.tenant, money.reference)
        await settle(tx, terms)
    else:
        await void(tx, terms, money.reference, money.reason)


@billing.on(IntentRefunded, publishes=[RefundPosted, *SETTLES])
async def refunded(event: Event[IntentRefunded], tx: Tx) -> None:
    """Money was given back: the guest has paid less, and owes less."""
    money = event.data
    terms = await account(tx, money.booking_id, money.currency)
    await note_receipt(tx, money.refund_id, money.booking_id, -money.amount_cents)
    line = partial(refund, account=terms, line_id=money.refund_id, amount_cents=money.amount_cents)
    await folios.decide(tx, terms.folio_id, line)
    await settle(tx, terms)


@billing.on(DeltaApplied, publishes=[ChargePosted])
async def delta_applied(event: Event[DeltaApplied], tx: Tx) -> None:
    """What a change of dates costs more is charged; what it costs less is posted once it was paid back."""
    change = event.data
    terms = await account(tx, change.booking_id, change.currency)
    await run(tx, DELTA, tx.tenant, change.change_id, change.booking_id, change.delta_cents)
    await charge_deltas(tx, terms)


async def charge_deltas(tx: Tx, terms: Terms) -> None:
    """Charge the differences that wait, once the terms of the booking are known. Cash is charged when it is asked for."""
    if not terms.confirmed:
        return
    for change_id, cents in await run(tx, WAITING, tx.tenant, terms.booking_id):
        amount = int(str(cents))
        if amount <= 0 or terms.cash:
            await run(tx, BECOME, "settled", tx.tenant, str(change_id))
        else:
            await _charge_delta(tx, terms, str(change_id), amount, "asked")


async def _charge_delta(tx: Tx, terms: Terms, change_id: str, amount_cents: int, after: str) -> None:
    """On a closed folio nothing is charged: the difference is kept, for people to see."""
    if (await folios.load(tx, terms.folio_id)).state.closed:
        await run(tx, BECOME, "too_late", tx.tenant, change_id)
        return
    line = partial(
        charge,
        account=terms,
        line_id=f"delta-{change_id}",
        kind="delta",
        amount_cents=amount_cents,
        change_id=change_id,
    )
    await folios.decide(tx, terms.folio_id, line)
    await run(tx, BECOME, after, tx.tenant, change_id)


@billing.on(IntentCreated, publishes=[ChargePosted])
async def cash_asked_for(event: Event[IntentCreated], tx: Tx) -> None:
    """The difference of a change of dates that a guest pays in cash, after the stay was paid for: open until it comes."""
    intent = event.data
    if intent.purpose == "delta" and intent.rail == "cash_pending":
        terms = await account(tx, intent.booking_id, intent.currency)
        await run(tx, DELTA, tx.tenant, intent.reference, intent.booking_id, intent.amount_cents)
        await _charge_delta(tx, terms, intent.reference, intent.amount_cents, "settled")

"""How money is given back: what is due is decided in a transaction of its own, then the vendor is asked, then it is said what
became of it. Any of this may run again: it is decided once, the vendor knows each refund by its key, and it is said once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from melmastoon.facts.house import Purpose
from melmastoon.facts.payment import IntentCaptured, IntentCreated, IntentFailed, IntentRefunded, payment
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.facts.reservation import BookingCancelled
from melmastoon.payment.capturing import charge_key
from melmastoon.payment.intents import Intent, create, intent_id, intents, payer
from melmastoon.payment.refunds import Refund, drop_promises, due, give_back, owe
from melmastoon.payment.settling import PATIENT, settle
from melmastoon.tables import run
from melmastoon.vendors.payment import Answer, Moved, Payback, gateway
from posthouse import Event, Tx

CANCEL = "UPDATE payers SET cancelled = 1 WHERE tenant = ? AND booking_id = ?"
# Only the first who comes says what became of a refund.
DONE = "UPDATE refunds SET state = ? WHERE tenant = ? AND refund_id = ? AND state = 'due' AND tries = ?"
QUEUE = """
INSERT INTO finance_queue (tenant, refund_id, booking_id, amount_cents, reason) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, refund_id) DO UPDATE SET reason = excluded.reason, state = 'open'"""
SETTLED = "UPDATE finance_queue SET state = 'done' WHERE tenant = ? AND refund_id = ?"

Outcome = tuple[Refund, Answer]

BY_POLICY = frozenset(("guest", "operator"))
"""Reasons for which the policy says how much comes back. For any other the guest has had nothing, and gets everything."""


async def ask_for_refunds(tenant: str, booking_id: str) -> Sequence[Outcome]:
    """Ask the vendors for everything that is due. Raises RetryLater while it cannot be known what they did."""
    async with payment.transaction(tenant) as tx:
        wanted = await due(tx, booking_id)
    return [(refund, await _asked(tenant, refund)) for refund in wanted]


async def _asked(tenant: str, refund: Refund) -> Answer:
    if refund.rail == "cash_pending":
        return Moved(refund.amount_cents)  # over the counter
    rail, key = gateway(refund.rail), f"{tenant}:{refund.refund_id}:{refund.tries}"
    payback = Payback(
        key=key,
        charge=charge_key(tenant, refund.intent_id),
        tenant=tenant,
        booking_id=refund.booking_id,
        amount_cents=refund.amount_cents,
    )
    return await settle(rail, key, partial(rail.refund, payback))


async def report(tx: Tx, outcomes: Sequence[Outcome]) -> None:
    """Say what became of refunds; what failed goes to finance."""
    for refund, answer in outcomes:
        after = "done" if isinstance(answer, Moved) else "failed"
        if (await run(tx, DONE, after, tx.tenant, refund.refund_id, refund.tries)).rowcount == 0:
            continue
        key = f"payment:refund:{refund.refund_id}:{refund.tries}"
        if isinstance(answer, Moved):
            await run(tx, SETTLED, tx.tenant, refund.refund_id)
            tx.publish(_refunded(refund), idempotency_key=key)
        else:
            values = (refund.refund_id, refund.booking_id, refund.amount_cents, answer.reason)
            await run(tx, QUEUE, tx.tenant, *values)
            tx.publish(_not_refunded(refund, answer.reason), idempotency_key=key)


async def cancel(event: Event[BookingCancelled]) -> Sequence[Outcome]:
    booking = event.data
    async with payment.transaction(event.tenant) as tx:
        who = await payer(tx, booking.booking_id)
        await run(tx, CANCEL, tx.tenant, booking.booking_id)
        await drop_promises(tx, booking.booking_id)
        await give_back(tx, "cancel", who, booking.refund_cents if booking.reason in BY_POLICY else None)
    return await ask_for_refunds(event.tenant, booking.booking_id)


@payment.on(BookingCancelled, calling=cancel, policy=PATIENT, publishes=[IntentRefunded, IntentFailed])
async def cancelled(event: Event[BookingCancelled], tx: Tx, outcomes: Sequence[Outcome]) -> None:
    """Give back what the policy says, or everything when the booking never came about."""
    await report(tx, outcomes)


async def captured_too_late(event: Event[IntentCaptured]) -> Sequence[Outcome]:
    return await ask_for_refunds(event.tenant, event.data.booking_id)


@payment.on(IntentCaptured, calling=captured_too_late, policy=PATIENT, publishes=[IntentRefunded, IntentFailed])
async def captured(event: Event[IntentCaptured], tx: Tx, outcomes: Sequence[Outcome]) -> None:
    """Give back what came after the booking was cancelled."""
    await report(tx, outcomes)


async def change_what_is_paid(event: Event[DeltaApplied]) -> Sequence[Outcome]:
    change = event.data
    async with payment.transaction(event.tenant) as tx:
        who = await payer(tx, change.booking_id)
        promise = await _promise(tx, change.booking_id)
        if promise is not None:
            await owe(tx, change.change_id, promise, change.delta_cents)
        elif change.delta_cents < 0 and not who.cancelled:
            await give_back(tx, change.change_id, who, -change.delta_cents)
    return await ask_for_refunds(event.tenant, change.booking_id)


@payment.on(
    DeltaApplied, calling=change_what_is_paid, policy=PATIENT, publishes=[IntentRefunded, IntentFailed, IntentCreated]
)
async def delta_applied(event: Event[DeltaApplied], tx: Tx, outcomes: Sequence[Outcome]) -> None:
    """A stay that became cheaper is paid back. Cash that was not counted yet becomes more or less; cash that was is asked
    for, and comes to the desk. What other rails owe is taken once it is on the folio."""
    change = event.data
    await report(tx, outcomes)
    who = await payer(tx, change.booking_id)
    stay = await _stay(tx, change.booking_id)
    if change.delta_cents > 0 and stay is not None and stay.state == "counted":
        await create(tx, who, "delta", change.change_id, change.delta_cents)


async def _stay(tx: Tx, booking_id: str) -> Intent | None:
    wanted = intent_id(booking_id, "stay", booking_id)
    return next((intent for intent in await intents(tx, booking_id) if intent.intent_id == wanted), None)


async def _promise(tx: Tx, booking_id: str) -> Intent | None:
    stay = await _stay(tx, booking_id)
    return stay if stay is not None and stay.state == "promised" else None


def _refunded(refund: Refund) -> IntentRefunded:
    return IntentRefunded(
        booking_id=refund.booking_id,
        intent_id=refund.intent_id,
        refund_id=refund.refund_id,
        amount_cents=refund.amount_cents,
        currency=refund.currency,
    )


def _not_refunded(refund: Refund, reason: str) -> IntentFailed:
    return IntentFailed(
        booking_id=refund.booking_id,
        intent_id=refund.intent_id,
        purpose=cast("Purpose", refund.purpose),
        reference=refund.reference,
        amount_cents=refund.amount_cents,
        currency=refund.currency,
        reason=reason,
        refund=True,
    )

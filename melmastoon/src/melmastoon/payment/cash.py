"""Cash at the front desk: what was promised is counted."""

from __future__ import annotations

from melmastoon.facts.payment import CashReconciled
from melmastoon.payment.intents import intents, move, payer
from posthouse import Reject, Tx


async def cash_due(tx: Tx, booking_id: str) -> int:
    """What a guest has promised and not brought yet, in cents."""
    return sum(intent.amount_cents for intent in await intents(tx, booking_id) if intent.state == "promised")


async def reconcile_cash(tx: Tx, booking_id: str, *, staff_id: str) -> int:
    """The desk has counted all that was promised for a booking; how much it was. 0: nothing was promised, or it was counted
    before. Raises Reject for a booking that was cancelled: give the guest the money back."""
    who = await payer(tx, booking_id)
    if who.cancelled:
        raise Reject(f"booking {booking_id} is cancelled: no cash is taken for it")
    counted = 0
    for intent in await intents(tx, booking_id):
        if not await move(tx, intent.intent_id, "promised", "counted"):
            continue
        counted += intent.amount_cents
        cash = CashReconciled(
            booking_id=booking_id,
            intent_id=intent.intent_id,
            amount_cents=intent.amount_cents,
            currency=intent.currency,
            staff_id=staff_id,
            purpose=intent.purpose,
        )
        tx.publish(cash, idempotency_key=f"payment:cash:{intent.intent_id}")
    return counted

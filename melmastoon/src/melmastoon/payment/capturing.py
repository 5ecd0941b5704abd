"""How money is taken: by the vendor of its rail, or in cash at the desk."""

from __future__ import annotations

from functools import partial

from melmastoon.facts.payment import IntentCaptured, IntentCreated, IntentFailed, payment
from melmastoon.payment.intents import captured, failed, move, payer
from melmastoon.payment.refunds import give_back_late
from melmastoon.payment.settling import PATIENT, settle, withdraw
from melmastoon.vendors.payment import Answer, Charge, Moved, gateway
from posthouse import Event, Tx


def charge_key(tenant: str, intent_id: str) -> str:
    """What the vendor knows the charge by."""
    return f"{tenant}:{intent_id}"


async def take(event: Event[IntentCreated]) -> Answer | None:
    """Ask the vendor for the money, unless the booking was cancelled meanwhile. None: cash has no vendor."""
    intent = event.data
    if intent.rail == "cash_pending":
        return None
    rail, key = gateway(intent.rail), charge_key(event.tenant, intent.intent_id)
    async with payment.transaction(event.tenant) as tx:
        cancelled = (await payer(tx, intent.booking_id)).cancelled
    if cancelled:
        return await withdraw(rail, key)
    charge = Charge(key=key, tenant=event.tenant, booking_id=intent.booking_id, amount_cents=intent.amount_cents)
    return await settle(rail, key, partial(rail.capture, charge))


@payment.on(IntentCreated, calling=take, policy=PATIENT, publishes=[IntentCaptured, IntentFailed])
async def taken(event: Event[IntentCreated], tx: Tx, answer: Answer | None) -> None:
    """Say what became of it. Money that comes after the booking was cancelled is given back whole."""
    intent = event.data
    who = await payer(tx, intent.booking_id)
    if answer is None:
        return await _promised(tx, intent, cancelled=who.cancelled)
    if not isinstance(answer, Moved):
        await move(tx, intent.intent_id, "created", "failed")
        tx.publish(failed(intent, answer.reason), idempotency_key=f"payment:capture:{intent.intent_id}")
        return None
    await move(tx, intent.intent_id, "created", "captured")
    tx.publish(captured(intent), idempotency_key=f"payment:capture:{intent.intent_id}")
    if who.cancelled:
        await give_back_late(tx, intent)
    return None


async def _promised(tx: Tx, intent: IntentCreated, *, cancelled: bool) -> None:
    """Cash: for the stay a promise is enough, for what is open at check-out it is not, until it is counted."""
    await move(tx, intent.intent_id, "created", "dropped" if cancelled else "promised")
    if cancelled:
        return
    if intent.purpose == "stay":
        tx.publish(captured(intent), idempotency_key=f"payment:capture:{intent.intent_id}")
    if intent.purpose == "balance":
        tx.publish(failed(intent, "cash_due"), idempotency_key=f"payment:capture:{intent.intent_id}")

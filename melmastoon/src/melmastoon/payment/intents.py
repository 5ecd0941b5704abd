"""Intents: money that is to be taken, from whom and for what. Ids follow from the reason, so that the same reason twice is the
same intent."""

from __future__ import annotations

from typing import Literal

import msgspec

from melmastoon.facts.house import Purpose, Rail
from melmastoon.facts.payment import IntentCaptured, IntentCreated, IntentFailed
from melmastoon.tables import run
from posthouse import Tx

State = Literal["created", "captured", "failed", "promised", "counted", "dropped"]

KNOW = "INSERT INTO payers (tenant, booking_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
HOLD = """
SELECT booking_id, rail, amount_cents, currency, committed, cancelled FROM payers
WHERE tenant = ? AND booking_id = ? FOR UPDATE"""
ADD = """
INSERT INTO intents (tenant, intent_id, booking_id, purpose, reference, rail, amount_cents, currency, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'created') ON CONFLICT DO NOTHING"""
OF_BOOKING = """
SELECT booking_id, intent_id, purpose, reference, rail, amount_cents, currency, state FROM intents
WHERE tenant = ? AND booking_id = ? ORDER BY intent_id"""
# Only the first who comes changes it.
MOVE = "UPDATE intents SET state = ? WHERE tenant = ? AND intent_id = ? AND state = ?"


class Payer(msgspec.Struct, frozen=True, array_like=True):
    """Who pays for a booking. Without a rail it was not heard of the booking itself yet."""

    booking_id: str
    rail: Rail | Literal[""]
    amount_cents: int
    currency: str
    committed: bool
    cancelled: bool


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """Money to be taken, and what became of it."""

    booking_id: str
    intent_id: str
    purpose: Purpose
    reference: str
    rail: Rail
    amount_cents: int
    currency: str
    state: State

    @property
    def taken(self) -> bool:
        """Whether the money is ours."""
        return self.state in ("captured", "counted")


async def payer(tx: Tx, booking_id: str) -> Payer:
    """Who pays, held until the transaction ends; made when nothing was heard of the booking before."""
    await run(tx, KNOW, tx.tenant, booking_id)
    return msgspec.convert((await run(tx, HOLD, tx.tenant, booking_id)).one(), Payer, strict=False)


async def intents(tx: Tx, booking_id: str) -> list[Intent]:
    """All of a booking; call it while holding the payer."""
    return msgspec.convert(list(await run(tx, OF_BOOKING, tx.tenant, booking_id)), list[Intent], strict=False)


def intent_id(booking_id: str, purpose: Purpose, reference: str) -> str:
    """The id of the money for this reason."""
    return f"int-{booking_id}-stay" if purpose == "stay" else f"int-{booking_id}-{purpose}-{reference}"


async def create(tx: Tx, who: Payer, purpose: Purpose, reference: str, amount_cents: int) -> None:
    """Say that money is to be taken; once."""
    if who.rail == "" or who.cancelled:
        return
    intent = IntentCreated(
        booking_id=who.booking_id,
        intent_id=intent_id(who.booking_id, purpose, reference),
        purpose=purpose,
        reference=reference,
        rail=who.rail,
        amount_cents=amount_cents,
        currency=who.currency,
    )
    values = (intent.intent_id, who.booking_id, purpose, reference, who.rail, amount_cents, who.currency)
    if (await run(tx, ADD, tx.tenant, *values)).rowcount:
        tx.publish(intent, idempotency_key=f"payment:create:{intent.intent_id}")


async def move(tx: Tx, intent_id: str, before: State, after: State) -> bool:
    """Change the state of an intent; False when somebody else did."""
    return (await run(tx, MOVE, after, tx.tenant, intent_id, before)).rowcount == 1


def captured(intent: IntentCreated | Intent) -> IntentCaptured:
    return IntentCaptured(
        booking_id=intent.booking_id,
        intent_id=intent.intent_id,
        purpose=intent.purpose,
        reference=intent.reference,
        rail=intent.rail,
        amount_cents=intent.amount_cents,
        currency=intent.currency,
    )


def failed(intent: IntentCreated | Intent, reason: str) -> IntentFailed:
    return IntentFailed(
        booking_id=intent.booking_id,
        intent_id=intent.intent_id,
        purpose=intent.purpose,
        reference=intent.reference,
        amount_cents=intent.amount_cents,
        currency=intent.currency,
        reason=reason,
    )

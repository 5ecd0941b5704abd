"""What is to be given back, and out of which intent. It is decided once, under the payer's row; then it is due until a vendor
has done it or has said no."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from melmastoon.facts.house import Rail
from melmastoon.facts.payment import IntentCreated
from melmastoon.payment.intents import Intent, Payer, intents, move
from melmastoon.tables import run
from posthouse import Tx

DECIDE = "INSERT INTO refund_decisions (tenant, cause) VALUES (?, ?) ON CONFLICT DO NOTHING"
ADD = """
INSERT INTO refunds (tenant, refund_id, intent_id, booking_id, amount_cents, currency, state)
VALUES (?, ?, ?, ?, ?, ?, 'due') ON CONFLICT DO NOTHING"""
# What was given back or is to be, of each intent.
SPOKEN_FOR = """
SELECT intent_id, SUM(amount_cents) FROM refunds WHERE tenant = ? AND booking_id = ? GROUP BY intent_id"""
DUE = """
SELECT r.refund_id, r.intent_id, r.booking_id, r.amount_cents, r.currency, r.tries, i.rail, i.purpose, i.reference
FROM refunds r JOIN intents i ON i.tenant = r.tenant AND i.intent_id = r.intent_id
WHERE r.tenant = ? AND r.booking_id = ? AND r.state = 'due' ORDER BY r.refund_id"""
# A promise of cash that a change of dates made larger or smaller.
OWE = "UPDATE intents SET amount_cents = amount_cents + ? WHERE tenant = ? AND intent_id = ? AND state = 'promised'"


class Refund(msgspec.Struct, frozen=True, array_like=True):
    """Money that is to be given back, with what is known of the intent it was taken by."""

    refund_id: str
    intent_id: str
    booking_id: str
    amount_cents: int
    currency: str
    tries: int
    rail: Rail
    purpose: str
    reference: str


def shared_out(amount_cents: int, left: Mapping[str, int]) -> dict[str, int]:
    """An amount over intents, out of what is left of each, the largest first; never more than there is."""
    parts: dict[str, int] = {}
    for intent_id, cents in sorted(left.items(), key=lambda one: (-one[1], one[0])):
        part = min(amount_cents, cents)
        if part > 0:
            parts[intent_id] = part
            amount_cents -= part
    return parts


async def due(tx: Tx, booking_id: str) -> list[Refund]:
    """What is to be given back for a booking, and was not yet."""
    return msgspec.convert(list(await run(tx, DUE, tx.tenant, booking_id)), list[Refund], strict=False)


async def give_back(tx: Tx, cause: str, who: Payer, amount_cents: int | None) -> None:
    """Decide to give back so much of what was taken for a booking; None: all of it. Once for each cause."""
    if (await run(tx, DECIDE, tx.tenant, f"{cause} {who.booking_id}")).rowcount == 0:
        return
    given = {str(id): int(str(cents)) for id, cents in await run(tx, SPOKEN_FOR, tx.tenant, who.booking_id)}
    taken = [intent for intent in await intents(tx, who.booking_id) if intent.taken]
    left = {intent.intent_id: intent.amount_cents - given.get(intent.intent_id, 0) for intent in taken}
    for id, cents in shared_out(sum(left.values()) if amount_cents is None else amount_cents, left).items():
        await run(tx, ADD, tx.tenant, f"ref-{cause}-{id}", id, who.booking_id, cents, who.currency)


async def give_back_late(tx: Tx, intent: IntentCreated) -> None:
    """Decide to give back money that came after the booking was cancelled."""
    values = (intent.intent_id, intent.booking_id, intent.amount_cents, intent.currency)
    await run(tx, ADD, tx.tenant, f"ref-late-{intent.intent_id}", *values)


async def owe(tx: Tx, change_id: str, promise: Intent, cents: int) -> None:
    """A promise of cash becomes another one, once for each change."""
    if (await run(tx, DECIDE, tx.tenant, f"{change_id} {promise.booking_id}")).rowcount:
        await run(tx, OWE, cents, tx.tenant, promise.intent_id)


async def drop_promises(tx: Tx, booking_id: str) -> None:
    """Nobody comes to the desk with this cash."""
    for intent in await intents(tx, booking_id):
        await move(tx, intent.intent_id, "promised", "dropped")

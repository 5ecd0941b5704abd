"""The manual queue: what a vendor did not do, for the desk to do by hand."""

from __future__ import annotations

from typing import Literal

import msgspec

from melmastoon.facts.lock_integration import VendorErred
from melmastoon.lock_integration.asking import Asked
from melmastoon.lock_integration.keys import Key
from melmastoon.tables import run
from posthouse import Tx

Operation = Literal["issue", "update", "revoke"]

ADD = """
INSERT INTO manual_queue (tenant, booking_id, operation, reason) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, booking_id, operation) DO UPDATE SET reason = excluded.reason, state = 'open'"""
DONE = "UPDATE manual_queue SET state = 'done' WHERE tenant = ? AND booking_id = ? AND operation = ? AND state = 'open'"
OPEN = """
SELECT booking_id, operation, reason FROM manual_queue WHERE tenant = ? AND state = 'open' ORDER BY booking_id, operation"""


class ByHand(msgspec.Struct, frozen=True, array_like=True):
    """Something that the desk has to do."""

    booking_id: str
    operation: Operation
    reason: str


async def by_hand(tx: Tx) -> list[ByHand]:
    """What waits for the desk."""
    return msgspec.convert(list(await run(tx, OPEN, tx.tenant)), list[ByHand], strict=False)


async def hand_over(tx: Tx, key: Key, operation: Operation, asked: Asked) -> None:
    """The vendor did not do it: the desk has to, and everybody is told."""
    await run(tx, ADD, tx.tenant, key.booking_id, operation, asked.trouble)
    trouble = VendorErred(
        booking_id=key.booking_id,
        property_id=key.property_id,
        vendor=asked.vendor,
        operation=operation,
        reason=asked.trouble,
    )
    tx.publish(trouble, idempotency_key=f"lock:{operation}:{key.id}:{key.turn}")


async def is_done(tx: Tx, booking_id: str, *operations: Operation) -> None:
    """Nobody has to do these by hand any more."""
    for operation in operations:
        await run(tx, DONE, tx.tenant, booking_id, operation)


async def waits(tx: Tx, booking_id: str, operation: Operation) -> bool:
    """Whether the desk has to do this."""
    return any(one.booking_id == booking_id and one.operation == operation for one in await by_hand(tx))

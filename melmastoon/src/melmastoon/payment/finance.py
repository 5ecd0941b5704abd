"""Finance's queue: refunds that the vendor did not make. The booking stays cancelled; somebody asks again, or pays by hand."""

from __future__ import annotations

import msgspec

from melmastoon.facts.payment import payment
from melmastoon.payment.intents import payer
from melmastoon.payment.refunding import ask_for_refunds, report
from melmastoon.tables import run
from posthouse import Reject, Tx

OPEN = """
SELECT refund_id, booking_id, amount_cents, reason FROM finance_queue WHERE tenant = ? AND state = 'open' ORDER BY refund_id"""
BOOKING = "SELECT booking_id FROM refunds WHERE tenant = ? AND refund_id = ?"
# One more try has a key of its own: the last one was voided at the vendor.
AGAIN = "UPDATE refunds SET state = 'due', tries = tries + 1 WHERE tenant = ? AND refund_id = ? AND state = 'failed'"


class OpenRefund(msgspec.Struct, frozen=True, array_like=True):
    """A refund that waits for somebody."""

    refund_id: str
    booking_id: str
    amount_cents: int
    reason: str


async def queue(tx: Tx) -> list[OpenRefund]:
    """What waits for finance."""
    return msgspec.convert(list(await run(tx, OPEN, tx.tenant)), list[OpenRefund], strict=False)


async def retry_refund(tenant: str, refund_id: str) -> bool:
    """Ask the vendor for a refund once more; False: it is open still, with the new reason. May be repeated: a refund that was
    made is not made again. Raises Reject for one that there is not, RetryLater while the vendor answers nothing."""
    async with payment.transaction(tenant) as tx:
        found = await run(tx, BOOKING, tenant, refund_id)
        if not found:
            raise Reject(f"there is no refund {refund_id}")
        booking_id = str(found.scalar())
        await payer(tx, booking_id)
        await run(tx, AGAIN, tenant, refund_id)
    outcomes = await ask_for_refunds(tenant, booking_id)
    async with payment.transaction(tenant) as tx:
        await payer(tx, booking_id)
        await report(tx, outcomes)
        return all(waiting.refund_id != refund_id for waiting in await queue(tx))

"""What a vendor failed to do is tried again by itself, beside the manual queue: keys that are to be revoked, until they are; keys
that did not follow a change of dates. A key that was not issued waits for the desk, or for check-in."""

from __future__ import annotations

from melmastoon.facts.lock_integration import KeyRevoked, KeyUpdated, VendorErred, lock_integration
from melmastoon.lock_integration import queue
from melmastoon.lock_integration.asking import APART, Asked, put, revoke
from melmastoon.lock_integration.ending import revoked
from melmastoon.lock_integration.keys import as_asked, found
from melmastoon.lock_integration.opening import updated
from posthouse import Event, RetryLater, Tx


async def ask_again(event: Event[VendorErred]) -> Asked | None:
    """Raises RetryLater while the vendor fails: then this comes again later."""
    trouble = event.data
    async with lock_integration.transaction(event.tenant) as tx:
        key = await found(tx, trouble.booking_id)
        waits = await queue.waits(tx, trouble.booking_id, trouble.operation)
    if key is None or trouble.operation == "issue" or (trouble.operation == "revoke" and key.state == "revoked"):
        return None
    if key.over:  # an update of ours may have reached the vendor after the request that revoked it
        asked = await revoke(event.tenant, key)
    elif trouble.operation == "update" and waits and key.state == "active":
        asked = await put(event.tenant, key)
    else:
        return None
    if asked.trouble:
        raise RetryLater(f"{trouble.vendor} still fails to {trouble.operation} the key of {trouble.booking_id}")
    return asked


@lock_integration.on(VendorErred, consumer="again", calling=ask_again, policy=APART, publishes=[KeyRevoked, KeyUpdated])
async def again(event: Event[VendorErred], tx: Tx, asked: Asked | None) -> None:
    """Say what was done after all."""
    if asked is None:
        return
    key = await as_asked(tx, event.data.booking_id, asked.turn)
    if key.state == "ending":
        await revoked(tx, key)
    elif key.state == "active":
        await updated(tx, key, asked)

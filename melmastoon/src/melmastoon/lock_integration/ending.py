"""Keys that are to open nothing any more: at check-out, after a cancellation, when nobody came.

It is noted that a key is over before its vendor is asked, so that nothing issues or changes it from there on. A key that the
vendor does not revoke stays `ending`: the desk can block it at the door, and it is tried again until one of them has done it."""

from __future__ import annotations

from msgspec.structs import replace

from melmastoon.facts.lock_integration import KeyRevoked, VendorErred, lock_integration
from melmastoon.facts.reservation import BookingCancelled, CheckOutStarted, NoShow
from melmastoon.lock_integration import queue
from melmastoon.lock_integration.asking import QUICK, Asked, revoke
from melmastoon.lock_integration.keys import Ended, Key, as_asked, found, save
from posthouse import Event, Tx

SAYS = [KeyRevoked, VendorErred]


async def end(tenant: str, booking_id: str, reason: Ended) -> Asked | None:
    """Note that a key is over and have the vendor revoke it; None when there is none to revoke."""
    async with lock_integration.transaction(tenant) as tx:
        key = await found(tx, booking_id)
        if key is None or key.state in ("none", "revoked"):
            return None
        if key.state != "ending":
            key = await save(tx, replace(key, state="ending", ended=reason))
    return await revoke(tenant, key)


async def ended(tx: Tx, booking_id: str, reason: Ended, asked: Asked | None) -> bool:
    """Say that the key is revoked, or that the vendor failed. False: there was none to revoke."""
    if asked is None:
        key = await found(tx, booking_id)
        if key is not None and key.state == "none":
            await save(tx, replace(key, state="revoked", ended=reason))
        return False
    key = await as_asked(tx, booking_id, asked.turn)
    if key.state == "revoked":
        return True
    if asked.trouble:
        await queue.hand_over(tx, await save(tx, key), "revoke", asked)
        return True
    await revoked(tx, key)
    return True


async def revoked(tx: Tx, key: Key) -> None:
    """Nothing opens any more."""
    await queue.is_done(tx, key.booking_id, "issue", "update", "revoke")
    await save(tx, replace(key, state="revoked"))
    tx.publish(revoked_key(key.booking_id, key.id, key.ended or "security"), idempotency_key=f"lock:revoke:{key.id}")


def revoked_key(booking_id: str, credential_id: str, reason: Ended) -> KeyRevoked:
    return KeyRevoked(booking_id=booking_id, credential_id=credential_id, reason=reason or "security")


async def end_at_check_out(event: Event[CheckOutStarted]) -> Asked | None:
    if event.data.asks != "key":
        return None
    return await end(event.tenant, event.data.booking_id, "checked_out")


@lock_integration.on(CheckOutStarted, calling=end_at_check_out, policy=QUICK, publishes=SAYS)
async def check_out_started(event: Event[CheckOutStarted], tx: Tx, asked: Asked | None) -> None:
    """The guest leaves, and what can be done about the folio is done: the key ends, whatever became of the money. Check-out
    waits for it, so it is said even when there was none, or none any more."""
    booking_id = event.data.booking_id
    if event.data.asks != "key":
        return
    key = await found(tx, booking_id)
    if not await ended(tx, booking_id, "checked_out", asked):
        lost = key.id if key is not None and key.state == "revoked" else ""
        tx.publish(revoked_key(booking_id, lost, "checked_out"))


async def end_cancelled(event: Event[BookingCancelled]) -> Asked | None:
    return await end(event.tenant, event.data.booking_id, "cancelled")


@lock_integration.on(BookingCancelled, calling=end_cancelled, policy=QUICK, publishes=SAYS)
async def cancelled(event: Event[BookingCancelled], tx: Tx, asked: Asked | None) -> None:
    await ended(tx, event.data.booking_id, "cancelled", asked)


async def end_unused(event: Event[NoShow]) -> Asked | None:
    return await end(event.tenant, event.data.booking_id, "no_show")


@lock_integration.on(NoShow, calling=end_unused, policy=QUICK, publishes=SAYS)
async def no_show(event: Event[NoShow], tx: Tx, asked: Asked | None) -> None:
    await ended(tx, event.data.booking_id, "no_show", asked)

"""What people do with keys: cut and block them by hand where the vendor fails, and suspend them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from melmastoon.facts.lock_integration import KeySuspended, lock_integration
from melmastoon.lock_integration import queue
from melmastoon.lock_integration.asking import put
from melmastoon.lock_integration.devices import vendor_of
from melmastoon.lock_integration.ending import revoked
from melmastoon.lock_integration.keys import Key, State, as_asked, found, save
from melmastoon.lock_integration.opening import issued_key, updated_key
from melmastoon.vendors.lock import encoder
from posthouse import Reject, RetryLater, RetryNow, Tx


async def issue_manually(tenant: str, booking_id: str) -> None:
    """Cut a card for the room and window of a booking, because the vendor did not. A booking that has a key that is right
    keeps it. Raises Reject for a booking without a room, and for one that is over."""
    async with lock_integration.transaction(tenant) as tx:
        key = await _known(tx, booking_id)
        if key.over:
            raise Reject(f"the stay of {booking_id} is over: it gets no key")
        if key.state == "active" and not await queue.waits(tx, booking_id, "update"):
            return
    await encoder().cut(key.credential(tenant))
    async with _unchanged(tenant, key) as (tx, now):
        await queue.is_done(tx, booking_id, "issue", "update")
        await save(tx, replace(now, state="active", manual=True))
        if key.state == "active":
            update = updated_key(now, change_id=now.change_id)
            tx.publish(update, idempotency_key=f"lock:cut:{now.id}:{now.turn}")
        else:
            card = issued_key(now, await vendor_of(tx, now.property_id), manual=True)
            tx.publish(card, idempotency_key=f"lock:cut:{now.id}:{now.turn}")


async def revoke_manually(tenant: str, booking_id: str) -> None:
    """Have no door of the house obey the key of a booking, because the vendor does not revoke it, or for safety. Needs no
    vendor. Raises Reject for a booking that never had a room."""
    async with lock_integration.transaction(tenant) as tx:
        key = await _known(tx, booking_id)
        if key.state == "revoked":
            return
        if key.state != "ending":
            key = await save(tx, replace(key, state="ending", ended="security"))
    await encoder().block(key.credential(tenant).id)
    async with lock_integration.transaction(tenant) as tx:
        now = await _known(tx, booking_id)
        if now.state != "revoked":
            await revoked(tx, now)


async def suspend(tenant: str, booking_id: str, *, reason: str) -> None:
    """Let a key open nothing for the time being: a dispute, or the police. Raises Reject without an active key, RetryLater
    when the vendor does not answer."""
    async with lock_integration.transaction(tenant) as tx:
        key = await _in_state(tx, booking_id, "active", but="suspended")
    if key.state == "suspended":
        return
    asked = await put(tenant, key, key.credential(tenant, "suspended"))
    if asked.trouble:
        raise RetryLater(f"{asked.vendor} did not suspend the key of {booking_id} ({asked.trouble}): try again")
    async with _unchanged(tenant, key) as (tx, now):
        await save(tx, replace(now, state="suspended"))
        suspended = KeySuspended(booking_id=booking_id, credential_id=now.id, reason=reason)
        tx.publish(suspended, idempotency_key=f"lock:suspend:{now.id}:{now.turn}")


async def reinstate(tenant: str, booking_id: str) -> None:
    """Let a suspended key open its room again. Raises as `suspend`."""
    async with lock_integration.transaction(tenant) as tx:
        key = await _in_state(tx, booking_id, "suspended", but="active")
    if key.state == "active":
        return
    asked = await put(tenant, key)
    if asked.trouble:
        raise RetryLater(f"{asked.vendor} did not reinstate the key of {booking_id} ({asked.trouble}): try again")
    async with _unchanged(tenant, key) as (tx, now):
        await save(tx, replace(now, state="active", manual=False))
        update = updated_key(now, change_id="")
        tx.publish(update, idempotency_key=f"lock:reinstate:{now.id}:{now.turn}")


@asynccontextmanager
async def _unchanged(tenant: str, key: Key) -> AsyncIterator[tuple[Tx, Key]]:
    """A transaction for a key that is as it was when it was asked for. When it is over by now, no door obeys what was asked
    for meanwhile; RetryNow says to begin again."""
    try:
        async with lock_integration.transaction(tenant) as tx:
            yield tx, await as_asked(tx, key.booking_id, key.turn)
    except RetryNow:
        async with lock_integration.transaction(tenant) as tx:
            over = (await _known(tx, key.booking_id)).over
        if over:
            await encoder().block(key.credential(tenant).id)
        raise


async def _known(tx: Tx, booking_id: str) -> Key:
    key = await found(tx, booking_id)
    if key is None:
        raise Reject(f"nothing is known of a room for {booking_id}: there is no key for it")
    return key


async def _in_state(tx: Tx, booking_id: str, *states: State, but: State) -> Key:
    """The key, if it is in one of these states, or in the one that is wanted already."""
    key = await _known(tx, booking_id)
    if key.state not in (*states, but):
        raise Reject(f"the key of {booking_id} is {key.state}: it cannot become {but}")
    return key

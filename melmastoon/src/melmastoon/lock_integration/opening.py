"""Keys that are to open something: at booking, at check-in, after a change of dates."""

from __future__ import annotations

from msgspec.structs import replace

from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.lock_integration import KeyIssued, KeyUpdated, Vendor, VendorErred, lock_integration
from melmastoon.facts.reservation import BookingConfirmed, BookingDatesChanged, CheckInStarted
from melmastoon.lock_integration import queue
from melmastoon.lock_integration.asking import PATIENT, QUICK, Asked, put, revoke
from melmastoon.lock_integration.devices import vendor_of
from melmastoon.lock_integration.keys import Key, as_asked, found, know, save
from posthouse import Event, RetryLater, Tx

SAYS = [KeyIssued, KeyUpdated, VendorErred]


async def open_doors(tenant: str, key: Key, *, wanted: bool) -> Asked:
    """Ask for a key, if it is wanted and not over."""
    if not wanted or key.over:
        async with lock_integration.transaction(tenant) as tx:
            return Asked(key.turn, await vendor_of(tx, key.property_id), skipped=True)
    return await put(tenant, key)


async def end_again(tenant: str, key: Key) -> Asked:
    """Have a key that is over revoked once more: changes of rooms come by another topic than the ends of stays, and a request
    of ours may have reached the vendor after the one that revoked it. Raises RetryLater while the vendor fails."""
    asked = await revoke(tenant, key)
    if asked.trouble:
        raise RetryLater(f"the key of {key.booking_id} is over, and the vendor does not revoke it: {asked.trouble}")
    return replace(asked, skipped=True)


async def issue_early(event: Event[BookingConfirmed]) -> Asked:
    booking = event.data
    async with lock_integration.transaction(event.tenant) as tx:
        key = await know(tx, booking)
    return await open_doors(event.tenant, key, wanted=not booking.cash_pending and key.state in ("none", "unsure"))


@lock_integration.on(BookingConfirmed, calling=issue_early, policy=QUICK, publishes=SAYS)
async def confirmed(event: Event[BookingConfirmed], tx: Tx, asked: Asked) -> None:
    """A guest who has paid gets the key at once; one who pays on arrival gets it at check-in."""
    key = await as_asked(tx, event.data.booking_id, asked.turn)
    if not asked.skipped:
        await issued(tx, key, asked)


async def issue_at_desk(event: Event[CheckInStarted]) -> Asked:
    guest = event.data
    async with lock_integration.transaction(event.tenant) as tx:
        key = await know(tx, guest)
    return await open_doors(event.tenant, key, wanted=_asks_for_key(guest) and key.state in ("none", "unsure"))


@lock_integration.on(CheckInStarted, calling=issue_at_desk, policy=QUICK, publishes=SAYS)
async def check_in_started(event: Event[CheckInStarted], tx: Tx, asked: Asked) -> None:
    """The guest stands at the desk: a key that was issued before is good, otherwise it is issued now."""
    key = await as_asked(tx, event.data.booking_id, asked.turn)
    if not asked.skipped:
        await issued(tx, key, asked)
    elif key.state == "active" and _asks_for_key(event.data):
        tx.publish(updated_key(key, change_id=""))


def _asks_for_key(guest: CheckInStarted) -> bool:
    return not guest.missing or "key" in guest.missing


async def follow(event: Event[AllocationReallocated]) -> Asked:
    """Note the new room and window at once, so that no key is issued for the old ones; then change the key there is."""
    swap = event.data
    async with lock_integration.transaction(event.tenant) as tx:
        key = await know(tx, swap)
        if key.change_id != swap.change_id:
            window = {"room_id": swap.room_id, "check_in": swap.check_in, "check_out": swap.check_out}
            key = await save(tx, replace(key, change_id=swap.change_id, **window))
    if key.over:
        return await end_again(event.tenant, key)
    return await open_doors(event.tenant, key, wanted=key.state == "active")


@lock_integration.on(AllocationReallocated, calling=follow, policy=PATIENT, publishes=SAYS)
async def reallocated(event: Event[AllocationReallocated], tx: Tx, asked: Asked) -> None:
    """The key opens the new room in the new window; the change waits for it, so it is said even when there is none."""
    await _answered(tx, await as_asked(tx, event.data.booking_id, asked.turn), asked)


async def follow_again(event: Event[BookingDatesChanged]) -> Asked | None:
    change = event.data
    async with lock_integration.transaction(event.tenant) as tx:
        key = await found(tx, change.booking_id)
    if key is None or "key" not in change.missing or key.change_id != change.change_id:
        return None
    return await open_doors(event.tenant, key, wanted=key.state == "active")


@lock_integration.on(BookingDatesChanged, calling=follow_again, policy=QUICK, publishes=SAYS)
async def dates_changed(event: Event[BookingDatesChanged], tx: Tx, asked: Asked | None) -> None:
    """The desk asks once more for a key that did not follow its booking. The first time, inventory has to swap the nights."""
    if asked is not None:
        await _answered(tx, await as_asked(tx, event.data.booking_id, asked.turn), asked)


async def _answered(tx: Tx, key: Key, asked: Asked) -> None:
    if asked.skipped:
        tx.publish(replace(updated_key(key, change_id=key.change_id), credential_id=""))
    else:
        await updated(tx, key, asked)


async def issued(tx: Tx, key: Key, asked: Asked) -> None:
    """Say that there is a key, or that the vendor failed."""
    if asked.trouble:
        await queue.hand_over(tx, await save(tx, replace(key, state="unsure")), "issue", asked)
        return
    await queue.is_done(tx, key.booking_id, "issue", "update")
    await save(tx, replace(key, state="active", manual=False))
    tx.publish(issued_key(key, asked.vendor))


async def updated(tx: Tx, key: Key, asked: Asked) -> None:
    """Say that the key is another one, or that the vendor failed."""
    if asked.trouble:
        await queue.hand_over(tx, await save(tx, key), "update", asked)
        return
    await queue.is_done(tx, key.booking_id, "issue", "update")
    await save(tx, replace(key, manual=False))
    tx.publish(updated_key(key, change_id=key.change_id))


def issued_key(key: Key, vendor: Vendor, *, manual: bool = False) -> KeyIssued:
    return KeyIssued(
        booking_id=key.booking_id,
        credential_id=key.id,
        property_id=key.property_id,
        room_id=key.room_id,
        check_in=key.check_in,
        check_out=key.check_out,
        vendor=vendor,
        manual=manual,
    )


def updated_key(key: Key, *, change_id: str) -> KeyUpdated:
    return KeyUpdated(
        booking_id=key.booking_id,
        credential_id=key.id,
        property_id=key.property_id,
        room_id=key.room_id,
        check_in=key.check_in,
        check_out=key.check_out,
        change_id=change_id,
    )

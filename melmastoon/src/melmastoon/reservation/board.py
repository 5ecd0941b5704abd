"""What the front desk sees of a booking: its status, what a part of it still waits for, its key, and what is to be done by
hand. Facts of others are noted here as they come; nothing is decided."""

from __future__ import annotations

from typing import Literal

import msgspec

from melmastoon.facts.lock_integration import KeyIssued, KeyRevoked, KeySuspended, KeyUpdated, VendorErred
from melmastoon.facts.payment import IntentFailed, IntentRefunded
from melmastoon.facts.reservation import reservation
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
from melmastoon.tables import run
from posthouse import Event, Tx

KeyState = Literal["none", "issued", "suspended", "revoked"]

# Whichever fact is the first about a booking makes its row.
ADD = "INSERT INTO booking_board (tenant, booking_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
# A key that opens the door, from this moment on.
ISSUED = """
UPDATE booking_board SET key_state = 'issued', key_by_hand = ?, issued_at = ? WHERE tenant = ? AND booking_id = ?"""
# A key that opens another door or window.
UPDATED = "UPDATE booking_board SET key_state = 'issued', updated_at = ? WHERE tenant = ? AND booking_id = ?"
# A key that opens nothing; without one there was none.
REVOKED = "UPDATE booking_board SET key_state = ?, revoked_at = ? WHERE tenant = ? AND booking_id = ?"
SUSPENDED = "UPDATE booking_board SET key_state = 'suspended' WHERE tenant = ? AND booking_id = ?"
# What the vendor did not do.
TROUBLE = """
UPDATE booking_board SET trouble = ?, trouble_reason = ?, trouble_at = ? WHERE tenant = ? AND booking_id = ?"""
REFUND = "UPDATE booking_board SET refund_trouble = ? WHERE tenant = ? AND booking_id = ?"
READ = """
SELECT key_state, key_by_hand, issued_at, updated_at, revoked_at, trouble, trouble_reason, trouble_at, refund_trouble
FROM booking_board WHERE tenant = ? AND booking_id = ?"""
OF_PROPERTY = "SELECT booking_id FROM bookings WHERE tenant = ? AND property_id = ? ORDER BY check_in, booking_id"


class Noted(msgspec.Struct, frozen=True):
    """What is known from others about one booking. Times are those of the facts."""

    key_state: KeyState = "none"
    key_by_hand: bool = False
    issued_at: str = ""
    updated_at: str = ""
    revoked_at: str = ""
    trouble: Literal["", "issue", "update", "revoke"] = ""
    trouble_reason: str = ""
    trouble_at: str = ""
    refund_trouble: str = ""

    @property
    def by_hand(self) -> str:
        """What waits in the manual queue, in words. The vendor's errors come by another topic than the keys, so that
        either may be known first: what was said about the key since then settles it."""
        since = {
            "": "",
            "issue": max(self.issued_at, self.revoked_at),
            "update": max(self.updated_at, self.revoked_at),
            "revoke": self.revoked_at,
        }[self.trouble]
        return f"{self.trouble} the key by hand: {self.trouble_reason}" if self.trouble_at > since else ""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One booking on the board. `missing` names what a partial check-in, check-out or change of dates waits for; `by_hand`
    what is to be done about the key; `refund_trouble` why money could not be given back."""

    booking: Booking
    key: KeyState
    key_by_hand: bool
    missing: str
    by_hand: str
    refund_trouble: str

    @property
    def wants_attention(self) -> bool:
        """Somebody has to do something."""
        return bool(self.missing or self.by_hand or self.refund_trouble)


async def card(tx: Tx, booking_id: str) -> Card:
    """One booking as the desk sees it. Raises Reject when there is none."""
    booking = await bookings.read(tx, booking_id)
    noted = await _noted(tx, booking_id)
    return Card(
        booking=booking,
        key=noted.key_state,
        key_by_hand=noted.key_by_hand,
        missing=", ".join(filter(None, (booking.missing, booking.change_missing))),
        by_hand=noted.by_hand,
        refund_trouble=noted.refund_trouble,
    )


async def cards(tx: Tx, property_id: str) -> list[Card]:
    """Every booking of a property, by arrival."""
    rows = await run(tx, OF_PROPERTY, tx.tenant, property_id)
    return [await card(tx, str(booking_id)) for (booking_id,) in rows]


async def _noted(tx: Tx, booking_id: str) -> Noted:
    found = await run(tx, READ, tx.tenant, booking_id)
    if not found:
        return Noted()
    row = dict(zip(Noted.__struct_fields__, found.one(), strict=True))
    return msgspec.convert(row | {"key_by_hand": bool(row["key_by_hand"])}, Noted)


@reservation.on(KeyIssued, consumer="board", reads=["booking_id", "manual"])
async def issued(event: Event[KeyIssued], tx: Tx) -> None:
    await run(tx, ADD, tx.tenant, event.data.booking_id)
    await run(tx, ISSUED, int(event.data.manual), event.time, tx.tenant, event.data.booking_id)


@reservation.on(KeyUpdated, consumer="board", reads=["booking_id", "credential_id"])
async def updated(event: Event[KeyUpdated], tx: Tx) -> None:
    if not event.data.credential_id:
        return
    await run(tx, ADD, tx.tenant, event.data.booking_id)
    await run(tx, UPDATED, event.time, tx.tenant, event.data.booking_id)


@reservation.on(KeyRevoked, consumer="board", reads=["booking_id", "credential_id"])
async def revoked(event: Event[KeyRevoked], tx: Tx) -> None:
    state: KeyState = "revoked" if event.data.credential_id else "none"
    await run(tx, ADD, tx.tenant, event.data.booking_id)
    await run(tx, REVOKED, state, event.time, tx.tenant, event.data.booking_id)


@reservation.on(KeySuspended, consumer="board", reads=["booking_id"])
async def suspended(event: Event[KeySuspended], tx: Tx) -> None:
    await run(tx, ADD, tx.tenant, event.data.booking_id)
    await run(tx, SUSPENDED, tx.tenant, event.data.booking_id)


@reservation.on(VendorErred, consumer="board", reads=["booking_id", "operation", "reason"])
async def erred(event: Event[VendorErred], tx: Tx) -> None:
    """The booking stays as it is."""
    said = event.data
    await run(tx, ADD, tx.tenant, said.booking_id)
    await run(tx, TROUBLE, said.operation, said.reason, event.time, tx.tenant, said.booking_id)


@reservation.on(IntentFailed, consumer="board", reads=["booking_id", "refund", "reason"])
async def refund_failed(event: Event[IntentFailed], tx: Tx) -> None:
    """A refund that failed un-cancels nothing: finance is told, and the desk sees it."""
    if event.data.refund:
        await run(tx, ADD, tx.tenant, event.data.booking_id)
        await run(tx, REFUND, event.data.reason, tx.tenant, event.data.booking_id)


@reservation.on(IntentRefunded, consumer="board", reads=["booking_id"])
async def refunded(event: Event[IntentRefunded], tx: Tx) -> None:
    await run(tx, ADD, tx.tenant, event.data.booking_id)
    await run(tx, REFUND, "", tx.tenant, event.data.booking_id)

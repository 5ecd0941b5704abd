"""Keys as they are stored: one for each booking, whatever its room and window become."""

from __future__ import annotations

from datetime import date
from typing import Literal

import msgspec

from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.reservation import BookingConfirmed, CheckInStarted
from melmastoon.tables import run
from melmastoon.vendors.lock import Credential
from posthouse import RetryNow, Tx

State = Literal["none", "unsure", "active", "suspended", "ending", "revoked"]
Ended = Literal["", "checked_out", "cancelled", "no_show", "security"]

# The first who hears of a booking makes its row; a change of dates may have come before.
KNOW = """
INSERT INTO keys (tenant, booking_id, property_id, room_id, check_in, check_out) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
HOLD = """
SELECT booking_id, property_id, room_id, check_in, check_out, change_id, manual, ended, turn, state FROM keys
WHERE tenant = ? AND booking_id = ? FOR UPDATE"""
SAVE = """
UPDATE keys SET room_id = ?, check_in = ?, check_out = ?, change_id = ?, manual = ?, ended = ?, state = ?, turn = turn + 1
WHERE tenant = ? AND booking_id = ?"""


class Key(msgspec.Struct, frozen=True, array_like=True):
    """The key of a booking."""

    booking_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date
    change_id: str
    manual: bool
    ended: Ended
    turn: int
    state: State

    @property
    def id(self) -> str:
        """What guests, desks and other services call it."""
        return f"key-{self.booking_id}"

    @property
    def over(self) -> bool:
        """Whether no vendor may be asked to let it open anything."""
        return self.state in ("ending", "revoked")

    def credential(self, tenant: str, state: Literal["active", "suspended"] = "active") -> Credential:
        """The key as its vendor is to know it."""
        return Credential(
            id=f"{tenant}:{self.id}",
            tenant=tenant,
            booking_id=self.booking_id,
            room_id=self.room_id,
            check_in=self.check_in.isoformat(),
            check_out=self.check_out.isoformat(),
            state=state,
        )


async def know(tx: Tx, stay: BookingConfirmed | CheckInStarted | AllocationReallocated) -> Key:
    """The key of a booking, held until the transaction ends; made for this room and window when there is none yet."""
    window = (stay.check_in.isoformat(), stay.check_out.isoformat())
    await run(tx, KNOW, tx.tenant, stay.booking_id, stay.property_id, stay.room_id, *window)
    return await held(tx, stay.booking_id)


async def held(tx: Tx, booking_id: str) -> Key:
    """The key of a booking that is known, held until the transaction ends."""
    return msgspec.convert((await run(tx, HOLD, tx.tenant, booking_id)).one(), Key, strict=False)


async def found(tx: Tx, booking_id: str) -> Key | None:
    """The key of a booking, held; None when nothing was heard of one."""
    rows = await run(tx, HOLD, tx.tenant, booking_id)
    return msgspec.convert(rows.one(), Key, strict=False) if rows else None


async def as_asked(tx: Tx, booking_id: str, turn: int) -> Key:
    """The key, held, if it is still as it was when the vendor was asked; otherwise ask again."""
    key = await held(tx, booking_id)
    if key.turn != turn:
        raise RetryNow(f"the key of {booking_id} changed while its vendor was asked")
    return key


async def save(tx: Tx, key: Key) -> Key:
    """Store a key and count its turn."""
    window = (key.check_in.isoformat(), key.check_out.isoformat())
    values = (key.room_id, *window, key.change_id, int(key.manual), key.ended, key.state)
    await run(tx, SAVE, *values, tx.tenant, key.booking_id)
    return msgspec.structs.replace(key, turn=key.turn + 1)

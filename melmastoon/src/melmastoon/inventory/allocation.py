"""How a room is found and kept. A window is a whole number of nights; check-out's night is somebody else's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, timedelta

import msgspec

from melmastoon.tables import run
from posthouse import Tx

# Rooms for sale of one type, in an order that never changes; the booking's own room first.
CANDIDATES = """
SELECT room_id FROM rooms WHERE tenant = ? AND property_id = ? AND room_type = ? AND (archived = 0 OR room_id = ?)
ORDER BY CASE WHEN room_id = ? THEN 0 ELSE 1 END, room_id"""
# Rooms of the type that somebody else has for one of the nights.
TAKEN = """
SELECT DISTINCT n.room_id FROM nights n JOIN rooms r ON r.tenant = n.tenant AND r.room_id = n.room_id
WHERE n.tenant = ? AND r.property_id = ? AND r.room_type = ? AND n.night >= ? AND n.night < ? AND n.booking_id <> ?"""
# The guard. A transaction that wants the same night waits here for the other, and then gets nothing.
TAKE = "INSERT INTO nights (tenant, room_id, night, booking_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
MINE = "SELECT room_id, night FROM nights WHERE tenant = ? AND booking_id = ?"
GIVE_BACK = "DELETE FROM nights WHERE tenant = ? AND room_id = ? AND night = ? AND booking_id = ?"
# Nights of this type that are not to be sold.
STOPPED = """
SELECT night FROM stop_sells
WHERE tenant = ? AND property_id = ? AND room_type = ? AND night >= ? AND night < ? AND active = 1"""

READ = """
SELECT booking_id, property_id, room_type, room_id, check_in, check_out, change_id, state FROM allocations
WHERE tenant = ? AND booking_id = ? FOR UPDATE"""
ADD = """
INSERT INTO allocations (tenant, booking_id, property_id, room_type, check_in, check_out, state)
VALUES (?, ?, ?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING"""
SAVE = """
UPDATE allocations SET room_id = ?, check_in = ?, check_out = ?, change_id = ?, state = ?
WHERE tenant = ? AND booking_id = ?"""


class Allocation(msgspec.Struct, frozen=True, array_like=True):
    """What a booking wanted and got."""

    booking_id: str
    property_id: str
    room_type: str
    room_id: str
    check_in: date
    check_out: date
    change_id: str
    state: str

    @property
    def id(self) -> str:
        return f"alc-{self.booking_id}"


def nights(check_in: date, check_out: date) -> list[str]:
    """The nights of a window, as they are stored."""
    return [(check_in + timedelta(days=day)).isoformat() for day in range((check_out - check_in).days)]


async def read(tx: Tx, booking_id: str) -> Allocation | None:
    """The allocation of a booking, held until the transaction ends."""
    rows = await run(tx, READ, tx.tenant, booking_id)
    return msgspec.convert(rows.one(), Allocation, strict=False) if rows else None


async def save(tx: Tx, allocation: Allocation) -> None:
    await run(
        tx,
        SAVE,
        allocation.room_id,
        allocation.check_in.isoformat(),
        allocation.check_out.isoformat(),
        allocation.change_id,
        allocation.state,
        tx.tenant,
        allocation.booking_id,
    )


async def take_room(tx: Tx, wanted: Allocation) -> str | None:
    """Take one room for all nights of the window, keeping those that are the booking's already and giving its other nights
    back; None, and nothing changed, when no single room is free or a night is not for sale.

    The choice follows from what is free: the room that the booking has, otherwise the first."""
    before = {(str(room), str(night)) for room, night in await run(tx, MINE, tx.tenant, wanted.booking_id)}
    if await _is_stopped(tx, wanted, but={night for _, night in before}):
        return None
    window = nights(wanted.check_in, wanted.check_out)
    for room_id in await _free(tx, wanted):
        missing = [night for night in window if (room_id, night) not in before]
        if await _take_all(tx, room_id, missing, wanted.booking_id):
            await _give_back(
                tx, wanted.booking_id, [one for one in before if one[0] != room_id or one[1] not in window]
            )
            return room_id
    return None


async def release(tx: Tx, booking_id: str, since: str = "") -> int:
    """Give back the nights of a booking, those from `since` on; how many there were. Nobody else's night is touched."""
    mine = [
        (str(room), str(night)) for room, night in await run(tx, MINE, tx.tenant, booking_id) if str(night) >= since
    ]
    await _give_back(tx, booking_id, mine)
    return len(mine)


async def _is_stopped(tx: Tx, wanted: Allocation, but: Collection[str]) -> bool:
    """Whether a night that the booking does not have yet is not for sale."""
    window = (wanted.check_in.isoformat(), wanted.check_out.isoformat())
    stopped = await run(tx, STOPPED, tx.tenant, wanted.property_id, wanted.room_type, *window)
    return any(str(night) not in but for (night,) in stopped)


async def _free(tx: Tx, wanted: Allocation) -> Sequence[str]:
    kind = (tx.tenant, wanted.property_id, wanted.room_type)
    window = (wanted.check_in.isoformat(), wanted.check_out.isoformat())
    taken = {str(room) for (room,) in await run(tx, TAKEN, *kind, *window, wanted.booking_id)}
    rooms = await run(tx, CANDIDATES, *kind, wanted.room_id, wanted.room_id)
    return [str(room) for (room,) in rooms if str(room) not in taken]


async def _take_all(tx: Tx, room_id: str, window: Sequence[str], booking_id: str) -> bool:
    """Every night or none: another booking may have come first since we looked."""
    for count, night in enumerate(window):
        if (await run(tx, TAKE, tx.tenant, room_id, night, booking_id)).rowcount == 0:
            await _give_back(tx, booking_id, [(room_id, taken) for taken in window[:count]])
            return False
    return True


async def _give_back(tx: Tx, booking_id: str, these: Collection[tuple[str, str]]) -> None:
    for room_id, night in sorted(these):
        await run(tx, GIVE_BACK, tx.tenant, room_id, night, booking_id)

"""What a revenue manager asks for: stop selling a room type for a night, and sell it again."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.inventory import StopSellActivated, StopSellCleared
from melmastoon.tables import run
from posthouse import Tx
from posthouse.store import Rows

# Both give the number of the change, and nothing when there is none to make.
STOP = """
INSERT INTO stop_sells (tenant, property_id, room_type, night) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, property_id, room_type, night) DO UPDATE SET active = 1, turn = stop_sells.turn + 1
WHERE stop_sells.active = 0 RETURNING turn"""
CLEAR = """
UPDATE stop_sells SET active = 0, turn = turn + 1
WHERE tenant = ? AND property_id = ? AND room_type = ? AND night = ? AND active = 1 RETURNING turn"""


async def activate_stop_sell(tx: Tx, property_id: str, room_type: str, night: date) -> bool:
    """Take no more bookings of this type for this night. False: it was so already."""
    done = await run(tx, STOP, tx.tenant, property_id, room_type, night.isoformat())
    if not done:
        return False
    stop = StopSellActivated(property_id=property_id, room_type=room_type, night=night)
    tx.publish(stop, idempotency_key=_key(stop, done))
    return True


async def clear_stop_sell(tx: Tx, property_id: str, room_type: str, night: date) -> bool:
    """Take bookings again. False: they were taken all the time."""
    done = await run(tx, CLEAR, tx.tenant, property_id, room_type, night.isoformat())
    if not done:
        return False
    clear = StopSellCleared(property_id=property_id, room_type=room_type, night=night)
    tx.publish(clear, idempotency_key=_key(clear, done))
    return True


def _key(change: StopSellActivated | StopSellCleared, turn: Rows) -> str:
    night = change.night.isoformat()
    return f"inventory:stop_sell:{change.property_id}:{change.room_type}:{night}:{turn.scalar()}"

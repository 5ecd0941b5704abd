"""What a revenue manager asks for: stop selling a room type for a night, and sell it again."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.inventory import StopSellActivated, StopSellCleared
from melmastoon.tables import run
from posthouse import Tx

STOP = "INSERT INTO stop_sells (tenant, property_id, room_type, night) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
CLEAR = "DELETE FROM stop_sells WHERE tenant = ? AND property_id = ? AND room_type = ? AND night = ?"


async def activate_stop_sell(tx: Tx, property_id: str, room_type: str, night: date) -> bool:
    """Take no more bookings of this type for this night. False: it was so already."""
    done = await run(tx, STOP, tx.tenant, property_id, room_type, night.isoformat())
    if done.rowcount == 0:
        return False
    tx.publish(StopSellActivated(property_id=property_id, room_type=room_type, night=night))
    return True


async def clear_stop_sell(tx: Tx, property_id: str, room_type: str, night: date) -> bool:
    """Take bookings again. False: they were taken all the time."""
    done = await run(tx, CLEAR, tx.tenant, property_id, room_type, night.isoformat())
    if done.rowcount == 0:
        return False
    tx.publish(StopSellCleared(property_id=property_id, room_type=room_type, night=night))
    return True

"""What a room can be, and what it becomes: one table. The service alone decides, in the order in which things are heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from melmastoon.facts.housekeeping import RoomStatus, RoomStatusChanged
from melmastoon.tables import run
from posthouse import Tx

Happening = Literal["guest_came", "guest_left", "cleaned", "broke", "repaired", "taken_off", "put_back"]
"""broke: nobody can sleep there. taken_off: nobody is to sleep there for some other reason, until it is put back."""

BECOMES: Mapping[Happening, Mapping[RoomStatus, RoomStatus]] = {
    "guest_came": {"clean": "occupied", "dirty": "occupied"},
    "guest_left": {"occupied": "dirty", "clean": "dirty"},
    "cleaned": {"dirty": "clean"},
    "broke": {
        "clean": "out_of_order",
        "dirty": "out_of_order",
        "occupied": "out_of_order",
        "out_of_service": "out_of_order",
    },
    "repaired": {"out_of_order": "dirty"},
    "taken_off": {"clean": "out_of_service", "dirty": "out_of_service"},
    "put_back": {"out_of_service": "dirty"},
}
"""What is not in it changes nothing: a room that is out of order stays so until it is repaired, whoever comes or cleans."""

KNOW = "INSERT INTO rooms (tenant, room_id, property_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
HOLD = "SELECT property_id, status FROM rooms WHERE tenant = ? AND room_id = ? FOR UPDATE"
BECOME = "UPDATE rooms SET status = ?, turn = turn + 1 WHERE tenant = ? AND room_id = ? RETURNING turn"


def becomes(before: RoomStatus, happening: Happening) -> RoomStatus:
    """What a room is after something happened to it."""
    return BECOMES[happening].get(before, before)


async def know(tx: Tx, room_id: str, property_id: str) -> None:
    """A room that nothing was heard of before is clean."""
    await run(tx, KNOW, tx.tenant, room_id, property_id)


async def happen(tx: Tx, room_id: str, property_id: str, happening: Happening) -> RoomStatus:
    """Let something happen to a room, and say so if it is in another state then."""
    await know(tx, room_id, property_id)
    house, status = (await run(tx, HOLD, tx.tenant, room_id)).one()
    before = cast("RoomStatus", str(status))
    after = becomes(before, happening)
    if after != before:
        turn = (await run(tx, BECOME, after, tx.tenant, room_id)).scalar()
        change = RoomStatusChanged(room_id=room_id, property_id=str(house), before=before, after=after)
        tx.publish(change, idempotency_key=f"housekeeping:room:{room_id}:{turn}")
    return after

"""Who sleeps where. A guest who stays longer may have to move: the old room is left, the new one is taken. Facts of rooms and of
guests come by different topics; whichever is heard second moves the guest."""

from __future__ import annotations

from melmastoon.facts.housekeeping import TaskCreated
from melmastoon.housekeeping.rooms import happen
from melmastoon.housekeeping.tasks import create, hold_house
from melmastoon.tables import run
from posthouse import Tx

COME = "INSERT INTO guests (tenant, booking_id, room_id, came_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
WHERE = "SELECT room_id FROM guests WHERE tenant = ? AND booking_id = ?"
CHANGE = "UPDATE guests SET room_id = ? WHERE tenant = ? AND booking_id = ?"
LEAVE = "DELETE FROM guests WHERE tenant = ? AND booking_id = ?"
NOTE = """
INSERT INTO moves (tenant, booking_id, change_id, room_id, moved_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
# The last of the moves since the guest came; what was swapped before that is no move.
LAST = """
SELECT m.room_id FROM moves m JOIN guests g ON g.tenant = m.tenant AND g.booking_id = m.booking_id
WHERE m.tenant = ? AND m.booking_id = ? AND m.moved_at >= g.came_at ORDER BY m.moved_at DESC LIMIT 1"""


async def come(tx: Tx, booking_id: str, property_id: str, room_id: str, at: str) -> None:
    """A guest is in."""
    await hold_house(tx, property_id)
    await happen(tx, room_id, property_id, "guest_came")
    await run(tx, COME, tx.tenant, booking_id, room_id, at)
    await _follow(tx, booking_id, property_id)


async def reallocate(tx: Tx, booking_id: str, property_id: str, change_id: str, room_id: str, at: str) -> None:
    """A booking has this room from now on."""
    await hold_house(tx, property_id)
    await run(tx, NOTE, tx.tenant, booking_id, change_id, room_id, at)
    await _follow(tx, booking_id, property_id)


async def leave(tx: Tx, booking_id: str, property_id: str, room_id: str) -> None:
    """A guest leaves from this room, though it may not have been heard of that they moved there."""
    await move(tx, booking_id, property_id, room_id)
    await turn_over(tx, f"tsk-{booking_id}", booking_id, property_id, room_id)
    await run(tx, LEAVE, tx.tenant, booking_id)


async def _follow(tx: Tx, booking_id: str, property_id: str) -> None:
    moved = await run(tx, LAST, tx.tenant, booking_id)
    if moved:
        await move(tx, booking_id, property_id, str(moved.scalar()))


async def move(tx: Tx, booking_id: str, property_id: str, room_id: str) -> None:
    """Let a guest be in this room; one who is there already stays."""
    await hold_house(tx, property_id)
    known = await run(tx, WHERE, tx.tenant, booking_id)
    before = str(known.scalar()) if known else room_id
    if before == room_id:
        return
    await run(tx, CHANGE, room_id, tx.tenant, booking_id)
    await turn_over(tx, f"tsk-{booking_id}-{before}", booking_id, property_id, before)
    await happen(tx, room_id, property_id, "guest_came")


async def turn_over(tx: Tx, task_id: str, booking_id: str, property_id: str, room_id: str) -> None:
    """A guest left this room: it is dirty, and wants work. Once."""
    task = TaskCreated(
        task_id=task_id, property_id=property_id, room_id=room_id, booking_id=booking_id, kind="turnover"
    )
    if await create(tx, task):
        await happen(tx, room_id, property_id, "guest_left")

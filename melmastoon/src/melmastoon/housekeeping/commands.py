"""What the people who clean, and who plan the cleaning, ask for."""

from __future__ import annotations

from melmastoon.facts.housekeeping import TaskCreated
from melmastoon.housekeeping import rooms, tasks
from posthouse import Tx


async def schedule_task(tx: Tx, task_id: str, *, property_id: str, room_id: str) -> bool:
    """Plan work on a room that nobody left: a spring clean. False: it was planned already."""
    task = TaskCreated(task_id=task_id, property_id=property_id, room_id=room_id, booking_id="", kind="scheduled")
    return await tasks.create(tx, task)


async def complete_task(tx: Tx, task_id: str, *, staff_id: str) -> bool:
    """The room is done. False: it was done before."""
    return await tasks.complete(tx, task_id, staff_id)


async def take_off(tx: Tx, *, property_id: str, room_id: str) -> None:
    """Let nobody sleep in a room for the time being, though nothing is broken."""
    await rooms.happen(tx, room_id, property_id, "taken_off")


async def put_back(tx: Tx, *, property_id: str, room_id: str) -> None:
    """Let guests have a room again, once it is cleaned."""
    await rooms.happen(tx, room_id, property_id, "put_back")

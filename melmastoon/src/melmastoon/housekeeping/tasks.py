"""Work on rooms: created, assigned to somebody on shift, completed. Nothing else follows anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from melmastoon.facts.housekeeping import TaskAssigned, TaskCompleted, TaskCreated
from melmastoon.housekeeping.rooms import happen
from melmastoon.tables import run
from posthouse import Reject, Tx

KNOW_HOUSE = "INSERT INTO properties (tenant, property_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
HOLD_HOUSE = "SELECT 1 FROM properties WHERE tenant = ? AND property_id = ? FOR UPDATE"
ADD = """
INSERT INTO tasks (tenant, task_id, property_id, room_id, booking_id, kind) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
READ = """
SELECT task_id, property_id, room_id, staff_id, state FROM tasks WHERE tenant = ? AND task_id = ? FOR UPDATE"""
UNASSIGNED = """
SELECT task_id, property_id, room_id, staff_id, state FROM tasks
WHERE tenant = ? AND property_id = ? AND state = 'created' ORDER BY task_id"""
AT_WORK = "SELECT staff_id FROM on_shift WHERE tenant = ? AND property_id = ?"
IN_HAND = "SELECT staff_id FROM tasks WHERE tenant = ? AND property_id = ? AND state = 'assigned'"
ASSIGN = """
UPDATE tasks SET state = 'assigned', staff_id = ?, turn = turn + 1
WHERE tenant = ? AND task_id = ? AND state = 'created' RETURNING turn"""
PUT_DOWN = """
UPDATE tasks SET state = 'created', staff_id = ''
WHERE tenant = ? AND property_id = ? AND staff_id = ? AND state = 'assigned'"""
COMPLETE = (
    "UPDATE tasks SET state = 'completed', staff_id = ? WHERE tenant = ? AND task_id = ? AND state <> 'completed'"
)


class Task(msgspec.Struct, frozen=True, array_like=True):
    """Work on one room."""

    task_id: str
    property_id: str
    room_id: str
    staff_id: str
    state: Literal["created", "assigned", "completed"]


def least_busy(at_work: Sequence[str], in_hand: Mapping[str, int]) -> str | None:
    """Who gets the next task: whoever has the fewest, the first by name among equals."""
    return min(at_work, key=lambda staff: (in_hand.get(staff, 0), staff), default=None)


async def hold_house(tx: Tx, property_id: str) -> None:
    """Let nobody else give out work of this house until the transaction ends."""
    await run(tx, KNOW_HOUSE, tx.tenant, property_id)
    await run(tx, HOLD_HOUSE, tx.tenant, property_id)


async def create(tx: Tx, task: TaskCreated) -> bool:
    """Add work and give it to somebody, if anybody is there. The same task twice is the same one."""
    await hold_house(tx, task.property_id)
    values = (task.task_id, task.property_id, task.room_id, task.booking_id, task.kind)
    if (await run(tx, ADD, tx.tenant, *values)).rowcount == 0:
        return False
    tx.publish(task, idempotency_key=f"housekeeping:create:{task.task_id}")
    await give_out(tx, task.property_id)
    return True


async def give_out(tx: Tx, property_id: str) -> None:
    """Assign what nobody has yet to those who are at work. Call it while holding the house."""
    at_work = [str(staff) for (staff,) in await run(tx, AT_WORK, tx.tenant, property_id)]
    in_hand = Counter(str(staff) for (staff,) in await run(tx, IN_HAND, tx.tenant, property_id))
    waiting = await run(tx, UNASSIGNED, tx.tenant, property_id)
    for task in msgspec.convert(list(waiting), list[Task], strict=False):
        staff = least_busy(at_work, in_hand)
        if staff is None:
            return
        in_hand[staff] += 1
        turn = (await run(tx, ASSIGN, staff, tx.tenant, task.task_id)).scalar()
        given = TaskAssigned(task_id=task.task_id, property_id=property_id, room_id=task.room_id, staff_id=staff)
        tx.publish(given, idempotency_key=f"housekeeping:assign:{task.task_id}:{turn}")


async def put_down(tx: Tx, property_id: str, staff_id: str) -> None:
    """Somebody went home: others do what is left."""
    await run(tx, PUT_DOWN, tx.tenant, property_id, staff_id)
    await give_out(tx, property_id)


async def complete(tx: Tx, task_id: str, staff_id: str) -> bool:
    """The room is done. Whoever did it did it, whether or not it was theirs. False: it was done before. Raises Reject for a
    task that there is not."""
    rows = await run(tx, READ, tx.tenant, task_id)
    if not rows:
        raise Reject(f"there is no task {task_id}")
    task = msgspec.convert(rows.one(), Task, strict=False)
    if (await run(tx, COMPLETE, staff_id, tx.tenant, task_id)).rowcount == 0:
        return False
    done = TaskCompleted(task_id=task_id, property_id=task.property_id, room_id=task.room_id, staff_id=staff_id)
    tx.publish(done, idempotency_key=f"housekeeping:complete:{task_id}")
    await happen(tx, task.room_id, task.property_id, "cleaned")
    return True

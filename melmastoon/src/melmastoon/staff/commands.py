"""What staff-service can be asked. Commands answer whether anything changed: what was done before is not done again."""

from __future__ import annotations

from melmastoon.facts.staff import Duty, ShiftClosed, ShiftOpened, staff
from melmastoon.tables import run, typed
from posthouse import Reject, Tx, app_of

SHIFT = """SELECT staff_id, property_id, duty, opened_at, closed_at FROM staff_shift
    WHERE tenant = ? AND shift_id = ? FOR UPDATE"""
TO_WORK = "INSERT INTO staff_at_work (tenant, staff_id, shift_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
NEW_SHIFT = """INSERT INTO staff_shift (tenant, shift_id, staff_id, property_id, duty, opened_at, closed_at)
    VALUES (?, ?, ?, ?, ?, ?, 0)"""
END_SHIFT = "UPDATE staff_shift SET closed_at = ? WHERE tenant = ? AND shift_id = ?"
HOME = "DELETE FROM staff_at_work WHERE tenant = ? AND shift_id = ?"
AT_WORK = """SELECT s.staff_id FROM staff_at_work w JOIN staff_shift s ON s.tenant = w.tenant AND s.shift_id = w.shift_id
    WHERE w.tenant = ? AND s.property_id = ? AND s.duty = ? ORDER BY s.staff_id"""


async def open_shift(tx: Tx, shift_id: str, *, staff_id: str, property_id: str, duty: Duty) -> bool:
    """Clock in. Nobody works two shifts at once."""
    if await run(tx, SHIFT, tx.tenant, shift_id):
        return False
    if not (await run(tx, TO_WORK, tx.tenant, staff_id, shift_id)).rowcount:
        if await run(tx, SHIFT, tx.tenant, shift_id):  # the same request, a moment earlier
            return False
        raise Reject(f"{staff_id} is at work already: close that shift first")
    await run(tx, NEW_SHIFT, tx.tenant, shift_id, staff_id, property_id, duty, int(app_of(staff).clock.now()))
    opened = ShiftOpened(staff_id=staff_id, shift_id=shift_id, property_id=property_id, duty=duty)
    tx.publish(opened, idempotency_key=f"staff:open:{shift_id}")
    return True


async def close_shift(tx: Tx, shift_id: str) -> bool:
    """Clock out."""
    found = typed(await run(tx, SHIFT, tx.tenant, shift_id), tuple[str, str, Duty, int, int])
    if not found:
        raise Reject(f"there is no shift {shift_id} in this tenant")
    staff_id, property_id, duty, opened_at, closed_at = found[0]
    if closed_at:
        return False
    now = int(app_of(staff).clock.now())
    await run(tx, END_SHIFT, now, tx.tenant, shift_id)
    await run(tx, HOME, tx.tenant, shift_id)
    minutes = max(now - opened_at, 0) // 60
    closed = ShiftClosed(staff_id=staff_id, shift_id=shift_id, property_id=property_id, duty=duty, minutes=minutes)
    tx.publish(closed, idempotency_key=f"staff:close:{shift_id}")
    return True


async def at_work(tx: Tx, property_id: str, duty: Duty) -> list[str]:
    """Who does this in this house now."""
    return [staff_id for (staff_id,) in typed(await run(tx, AT_WORK, tx.tenant, property_id, duty), tuple[str])]

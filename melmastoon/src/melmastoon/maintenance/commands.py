"""What maintenance-service can be asked to do. Each answers whether anything changed: what was done before is not done
again."""

from __future__ import annotations

from collections.abc import Sequence

from melmastoon.facts.maintenance import TicketClosed, TicketOpened
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

NEW_ROOM = "INSERT INTO maintenance_room (tenant, room_id, property_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
LOCK_ROOM = "SELECT 1 FROM maintenance_room WHERE tenant = ? AND room_id = ? FOR UPDATE"
NEW_TICKET = """INSERT INTO maintenance_ticket
    (tenant, ticket_id, room_id, property_id, summary, out_of_order, closed, parts, labour_minutes)
    VALUES (?, ?, ?, ?, ?, ?, 0, '', 0) ON CONFLICT DO NOTHING"""
TICKET = "SELECT room_id, property_id, out_of_order, closed FROM maintenance_ticket WHERE tenant = ? AND ticket_id = ?"
CLOSE = """UPDATE maintenance_ticket SET closed = 1, parts = ?, labour_minutes = ?
    WHERE tenant = ? AND ticket_id = ? AND closed = 0"""
STILL_OUT = "SELECT 1 FROM maintenance_ticket WHERE tenant = ? AND room_id = ? AND out_of_order = 1 AND closed = 0"


async def open_ticket(
    tx: Tx, ticket_id: str, *, property_id: str, room_id: str, summary: str, out_of_order: bool = True
) -> bool:
    """Something in a room wants repair."""
    await run(tx, NEW_ROOM, tx.tenant, room_id, property_id)
    await run(tx, LOCK_ROOM, tx.tenant, room_id)
    values = (tx.tenant, ticket_id, room_id, property_id, summary, int(out_of_order))
    if not (await run(tx, NEW_TICKET, *values)).rowcount:
        return False
    opened = TicketOpened(
        ticket_id=ticket_id, property_id=property_id, room_id=room_id, summary=summary, out_of_order=out_of_order
    )
    tx.publish(opened, idempotency_key=f"maintenance:open:{ticket_id}")
    return True


async def close_ticket(tx: Tx, ticket_id: str, *, parts: Sequence[str] = (), labour_minutes: int) -> bool:
    """It is repaired. The room comes back with its last ticket that kept it out of order."""
    found = typed(await run(tx, TICKET, tx.tenant, ticket_id), tuple[str, str, int, int])
    if not found:
        raise Reject(f"there is no ticket {ticket_id} in this tenant")
    room_id, property_id, out_of_order, _ = found[0]
    await run(tx, LOCK_ROOM, tx.tenant, room_id)
    if not (await run(tx, CLOSE, ",".join(parts), labour_minutes, tx.tenant, ticket_id)).rowcount:
        return False
    closed = TicketClosed(
        ticket_id=ticket_id,
        property_id=property_id,
        room_id=room_id,
        parts=tuple(parts),
        labour_minutes=labour_minutes,
        room_back=bool(out_of_order) and not await run(tx, STILL_OUT, tx.tenant, room_id),
    )
    tx.publish(closed, idempotency_key=f"maintenance:close:{ticket_id}")
    return True

"""What is heard of guests, staff, rooms and repairs."""

from __future__ import annotations

from melmastoon.facts.housekeeping import RoomStatusChanged, TaskAssigned, TaskCreated, housekeeping
from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.maintenance import TicketClosed, TicketOpened
from melmastoon.facts.property import RoomAdded
from melmastoon.facts.reservation import CheckedIn, CheckOutStarted
from melmastoon.facts.staff import ShiftClosed, ShiftOpened
from melmastoon.housekeeping import guests
from melmastoon.housekeeping.rooms import happen, know
from melmastoon.housekeeping.tasks import create, give_out, hold_house, put_down
from melmastoon.tables import run
from posthouse import Event, Tx

ROOMS = [TaskCreated, TaskAssigned, RoomStatusChanged]
"""What may follow when a guest comes, moves or leaves."""

OPEN_SHIFT = """
INSERT INTO on_shift (tenant, staff_id, property_id, shift_id) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, staff_id) DO UPDATE SET property_id = excluded.property_id, shift_id = excluded.shift_id"""
CLOSE_SHIFT = "DELETE FROM on_shift WHERE tenant = ? AND staff_id = ? AND shift_id = ?"


@housekeeping.on(RoomAdded)
async def room_added(event: Event[RoomAdded], tx: Tx) -> None:
    await know(tx, event.data.room_id, event.data.property_id)


@housekeeping.on(CheckedIn, publishes=ROOMS)
async def checked_in(event: Event[CheckedIn], tx: Tx) -> None:
    guest = event.data
    await guests.come(tx, guest.booking_id, guest.property_id, guest.room_id, event.time)


@housekeeping.on(AllocationReallocated, publishes=ROOMS)
async def reallocated(event: Event[AllocationReallocated], tx: Tx) -> None:
    """A guest who stays longer may have another room now."""
    swap = event.data
    await guests.reallocate(tx, swap.booking_id, swap.property_id, swap.change_id, swap.room_id, event.time)


@housekeeping.on(CheckOutStarted, publishes=ROOMS)
async def check_out_started(event: Event[CheckOutStarted], tx: Tx) -> None:
    """The guest leaves, whatever becomes of the money: the room is dirty, and wants work. Once, however often the desk tries."""
    if event.data.asks == "folio":
        await guests.leave(tx, event.data.booking_id, event.data.property_id, event.data.room_id)


@housekeeping.on(ShiftOpened, publishes=[TaskAssigned])
async def shift_opened(event: Event[ShiftOpened], tx: Tx) -> None:
    """Somebody came to clean: work that waited is theirs."""
    shift = event.data
    if shift.duty == "housekeeping":
        await hold_house(tx, shift.property_id)
        await run(tx, OPEN_SHIFT, tx.tenant, shift.staff_id, shift.property_id, shift.shift_id)
        await give_out(tx, shift.property_id)


@housekeeping.on(ShiftClosed, publishes=[TaskAssigned])
async def shift_closed(event: Event[ShiftClosed], tx: Tx) -> None:
    """Somebody went home: what they did not do is given to others, now or when somebody comes."""
    shift = event.data
    if shift.duty == "housekeeping":
        await hold_house(tx, shift.property_id)
        await run(tx, CLOSE_SHIFT, tx.tenant, shift.staff_id, shift.shift_id)
        await put_down(tx, shift.property_id, shift.staff_id)


@housekeeping.on(TicketOpened, publishes=[RoomStatusChanged])
async def ticket_opened(event: Event[TicketOpened], tx: Tx) -> None:
    """Something is broken: nobody can sleep there."""
    ticket = event.data
    if ticket.out_of_order:
        await happen(tx, ticket.room_id, ticket.property_id, "broke")


@housekeeping.on(TicketClosed, publishes=[RoomStatusChanged, TaskCreated, TaskAssigned])
async def ticket_closed(event: Event[TicketClosed], tx: Tx) -> None:
    """The last repair is done: the room comes back dirty, and wants work."""
    ticket = event.data
    if not ticket.room_back:
        return
    task = TaskCreated(
        task_id=f"tsk-{ticket.ticket_id}",
        property_id=ticket.property_id,
        room_id=ticket.room_id,
        booking_id="",
        kind="scheduled",
    )
    if await happen(tx, ticket.room_id, ticket.property_id, "repaired") == "dirty":
        await create(tx, task)

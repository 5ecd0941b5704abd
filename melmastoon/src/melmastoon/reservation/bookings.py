"""Bookings as they are stored. Who wants to change one takes it, which locks it; its status follows the table."""

from __future__ import annotations

from datetime import date

import msgspec

from melmastoon.facts.house import Guest, Rail
from melmastoon.reservation.status import Status, check
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

COLUMNS = (
    "booking_id, property_id, room_type, room_id, check_in, check_out, guest_id, guest, special_requests, rail, amount_cents, "
    "refundable_cents, currency, cash_counted, status, status_before, change_id, missing, change_missing, reason, "
    "check_ins, check_outs"
)

# A new booking; the same one twice is the same one.
ADD = f"""
INSERT INTO bookings (tenant, {COLUMNS}) VALUES (?{", ?" * len(COLUMNS.split(", "))})
ON CONFLICT DO NOTHING"""
# One booking as it stands.
READ = f"SELECT {COLUMNS} FROM bookings WHERE tenant = ? AND booking_id = ?"
# The same, locked until the transaction ends.
TAKE = f"{READ} FOR UPDATE"
# What may change, as long as nobody moved it meanwhile.
SAVE = """
UPDATE bookings SET room_id = ?, check_in = ?, check_out = ?, guest_id = ?, guest = ?, special_requests = ?,
    amount_cents = ?, refundable_cents = ?, cash_counted = ?, status = ?, status_before = ?, change_id = ?, missing = ?, change_missing = ?,
    reason = ?, check_ins = ?, check_outs = ?
WHERE tenant = ? AND booking_id = ? AND status = ?"""
# Those that a guest is in.
OF_GUEST = "SELECT booking_id FROM bookings WHERE tenant = ? AND guest_id = ? ORDER BY booking_id"


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """One booking. `change_id` is the change of dates that it is in, `status_before` where that returns to. `missing` is
    what a check-in or check-out still waits for, `change_missing` what a change of dates does, both in words for the desk.
    `reason`: why it was cancelled. `check_ins` and `check_outs` count how often others were asked for their part."""

    booking_id: str
    property_id: str
    room_type: str
    room_id: str = ""
    check_in: date
    check_out: date
    guest: Guest
    special_requests: str = ""
    rail: Rail
    amount_cents: int
    refundable_cents: int
    currency: str
    cash_counted: bool = False
    status: Status = "held"
    status_before: Status | None = None
    change_id: str = ""
    missing: str = ""
    change_missing: str = ""
    reason: str = ""
    check_ins: int = 0
    check_outs: int = 0

    def check_becomes(self, status: Status) -> None:
        """Raises Reject unless that may follow."""
        check(self.booking_id, self.status, status)


async def add(tx: Tx, booking: Booking) -> bool:
    """Store a new booking. False, and no effect, when there is one with its id."""
    fixed = (booking.booking_id, booking.property_id, booking.room_type)
    values = (
        *fixed,
        *_window(booking),
        *_guest(booking),
        booking.rail,
        booking.amount_cents,
        booking.refundable_cents,
        booking.currency,
        *_standing(booking),
    )
    return (await run(tx, ADD, tx.tenant, *values)).rowcount == 1


async def read(tx: Tx, booking_id: str) -> Booking:
    """The booking, to look at. Raises Reject when there is none."""
    return await _one(tx, READ, booking_id)


async def take(tx: Tx, booking_id: str) -> Booking:
    """The booking, to be changed: nobody else changes it until the transaction ends. Raises Reject when there is none."""
    return await _one(tx, TAKE, booking_id)


async def of_guest(tx: Tx, guest_id: str) -> list[str]:
    """The bookings that a guest is in."""
    return [booking_id for (booking_id,) in typed(await run(tx, OF_GUEST, tx.tenant, guest_id), tuple[str])]


async def _one(tx: Tx, sql: str, booking_id: str) -> Booking:
    found = await run(tx, sql, tx.tenant, booking_id)
    if not found:
        raise Reject(f"there is no booking {booking_id} of {tx.tenant}")
    row = dict(zip(COLUMNS.split(", "), found.one(), strict=True))
    del row["guest_id"]  # which is in there
    row["guest"] = msgspec.json.decode(str(row["guest"]))
    row["cash_counted"] = bool(row["cash_counted"])
    row["status_before"] = row["status_before"] or None
    return msgspec.convert(row, Booking)


async def save(tx: Tx, before: Booking, after: Booking) -> Booking:
    """Store `after` in place of `before`, which this transaction has taken. Raises Reject for a status that may not
    follow."""
    if before.status != after.status:
        before.check_becomes(after.status)
    values = (
        *_window(after),
        *_guest(after),
        after.amount_cents,
        after.refundable_cents,
        *_standing(after),
    )
    saved = await run(tx, SAVE, *values, tx.tenant, before.booking_id, before.status)
    if saved.rowcount != 1:
        raise RuntimeError(f"booking {before.booking_id} was moved by somebody else while this transaction held it")
    return after


def _window(booking: Booking) -> tuple[str, str, str]:
    return booking.room_id, booking.check_in.isoformat(), booking.check_out.isoformat()


def _guest(booking: Booking) -> tuple[str, str, str]:
    return booking.guest.guest_id, msgspec.json.encode(booking.guest).decode(), booking.special_requests


def _standing(booking: Booking) -> tuple[int | str, ...]:
    return (
        int(booking.cash_counted),
        booking.status,
        booking.status_before or "",
        booking.change_id,
        booking.missing,
        booking.change_missing,
        booking.reason,
        booking.check_ins,
        booking.check_outs,
    )

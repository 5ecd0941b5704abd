"""No key outlives its stay.

Known from the lock vendors' own books: which credentials open a door now. A booking that is over, or never came about, must
have none; whoever is in the house or is still to come may have one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from melmastoon.demo.books import Books

OPENING = """
SELECT tenant, booking_id, room_id FROM credentials WHERE state = 'active' AND blocked = 0 ORDER BY tenant, booking_id"""
MAY = frozenset(("confirmed", "dates_changing", "check_in_started", "check_in_partial", "checked_in"))
"""What a booking is while a key may open its door."""


def lingering(books: Books, vendors: Path) -> Sequence[str]:
    """Every key that should open nothing, in words."""
    sql = "SELECT tenant, booking_id, status FROM bookings"
    status = {(tenant, booking): status for tenant, booking, status in books.rows("reservation", sql)}
    with closing(sqlite3.connect(f"file:{vendors}?mode=ro", uri=True)) as connection:
        opening = connection.execute(OPENING).fetchall()
    return [
        f"the key of {booking} still opens {room}: it is {status.get((tenant, booking), 'unknown')}"
        for tenant, booking, room in opening
        if status.get((tenant, booking)) not in MAY
    ]

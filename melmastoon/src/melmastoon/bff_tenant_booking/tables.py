"""What the front remembers: how each booking stands, for the page that a guest looks at while waiting."""

from __future__ import annotations

from melmastoon.facts.bff_tenant_booking import bff_tenant_booking
from melmastoon.tables import run
from posthouse import Tx

BOOKINGS = """CREATE TABLE IF NOT EXISTS bff_booking (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (tenant, booking_id))"""


@bff_tenant_booking.setup
async def make_tables(tx: Tx) -> None:
    await run(tx, BOOKINGS)

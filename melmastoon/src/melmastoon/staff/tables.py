"""What staff-service remembers: every shift, and for each who is at work the one that is open. Times are whole seconds."""

from __future__ import annotations

from melmastoon.facts.staff import staff
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS staff_shift (
        tenant TEXT NOT NULL, shift_id TEXT NOT NULL, staff_id TEXT NOT NULL, property_id TEXT NOT NULL,
        duty TEXT NOT NULL, opened_at BIGINT NOT NULL, closed_at BIGINT NOT NULL, PRIMARY KEY (tenant, shift_id))""",
    """CREATE TABLE IF NOT EXISTS staff_at_work (
        tenant TEXT NOT NULL, staff_id TEXT NOT NULL, shift_id TEXT NOT NULL, PRIMARY KEY (tenant, staff_id))""",
)


@staff.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

"""What maintenance-service remembers. The row of a room is there to be locked: what its tickets say follows from all of
them."""

from __future__ import annotations

from melmastoon.facts.maintenance import maintenance
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS maintenance_room (
        tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, PRIMARY KEY (tenant, room_id))""",
    """CREATE TABLE IF NOT EXISTS maintenance_ticket (
        tenant TEXT NOT NULL, ticket_id TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL,
        summary TEXT NOT NULL, out_of_order INTEGER NOT NULL, closed INTEGER NOT NULL, parts TEXT NOT NULL,
        labour_minutes INTEGER NOT NULL, PRIMARY KEY (tenant, ticket_id))""",
)


@maintenance.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

"""The tables of inventory."""

from __future__ import annotations

from melmastoon.facts.inventory import inventory
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """
CREATE TABLE IF NOT EXISTS rooms (
    tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
    archived INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tenant, room_id)
)""",
    # The guard: a room is one booking's for a night.
    """
CREATE TABLE IF NOT EXISTS nights (
    tenant TEXT NOT NULL, room_id TEXT NOT NULL, night TEXT NOT NULL, booking_id TEXT NOT NULL,
    PRIMARY KEY (tenant, room_id, night)
)""",
    "CREATE INDEX IF NOT EXISTS nights_of_booking ON nights (tenant, booking_id)",
    # What each booking wanted and got. waiting: no room of that type is known yet. stayed: it is over.
    """
CREATE TABLE IF NOT EXISTS allocations (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
    room_id TEXT NOT NULL DEFAULT '', check_in TEXT NOT NULL, check_out TEXT NOT NULL, change_id TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN ('waiting', 'committed', 'blocked', 'released', 'stayed')),
    PRIMARY KEY (tenant, booking_id)
)""",
    # `turn` counts how often the night was stopped or cleared.
    """
CREATE TABLE IF NOT EXISTS stop_sells (
    tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, night TEXT NOT NULL,
    active INTEGER NOT NULL DEFAULT 1, turn INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, property_id, room_type, night)
)""",
    # One row for each room type that is asked for: whoever holds it, no room of that type comes or goes meanwhile.
    """
CREATE TABLE IF NOT EXISTS room_types (
    tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, PRIMARY KEY (tenant, property_id, room_type)
)""",
)


@inventory.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

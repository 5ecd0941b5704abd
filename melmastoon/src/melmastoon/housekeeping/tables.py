"""The tables of housekeeping."""

from __future__ import annotations

from melmastoon.facts.housekeeping import housekeeping
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """
CREATE TABLE IF NOT EXISTS rooms (
    tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'clean',
    turn INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tenant, room_id)
)""",
    """
CREATE TABLE IF NOT EXISTS tasks (
    tenant TEXT NOT NULL, task_id TEXT NOT NULL, property_id TEXT NOT NULL, room_id TEXT NOT NULL, booking_id TEXT NOT NULL,
    kind TEXT NOT NULL, staff_id TEXT NOT NULL DEFAULT '', turn INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'created' CHECK (state IN ('created', 'assigned', 'completed')),
    PRIMARY KEY (tenant, task_id)
)""",
    "CREATE INDEX IF NOT EXISTS tasks_of_property ON tasks (tenant, property_id, state)",
    # Who is at work. Somebody's shifts come in order, so that the latest one is the one that counts.
    """
CREATE TABLE IF NOT EXISTS on_shift (
    tenant TEXT NOT NULL, staff_id TEXT NOT NULL, property_id TEXT NOT NULL, shift_id TEXT NOT NULL,
    PRIMARY KEY (tenant, staff_id)
)""",
    # Who sleeps where, and since when; and moves to another room, which may be heard of before the guest is.
    """
CREATE TABLE IF NOT EXISTS guests (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, room_id TEXT NOT NULL, came_at TEXT NOT NULL,
    PRIMARY KEY (tenant, booking_id)
)""",
    """
CREATE TABLE IF NOT EXISTS moves (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, change_id TEXT NOT NULL, room_id TEXT NOT NULL, moved_at TEXT NOT NULL,
    PRIMARY KEY (tenant, booking_id, change_id)
)""",
    # Whoever gives out the work of a house holds its row.
    "CREATE TABLE IF NOT EXISTS properties (tenant TEXT NOT NULL, property_id TEXT NOT NULL, PRIMARY KEY (tenant, property_id))",
)


@housekeeping.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

"""What property-service remembers."""

from __future__ import annotations

from melmastoon.facts.property import property
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS property_house (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
        currency TEXT NOT NULL, amenities TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (tenant, property_id))""",
    """CREATE TABLE IF NOT EXISTS property_room (
        tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
        number TEXT NOT NULL, archived TEXT NOT NULL, PRIMARY KEY (tenant, room_id),
        UNIQUE (tenant, property_id, number))""",
    """CREATE TABLE IF NOT EXISTS property_room_type (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, beds INTEGER NOT NULL,
        most_guests INTEGER NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (tenant, property_id, room_type))""",
)


@property.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

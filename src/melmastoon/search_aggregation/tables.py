"""What search-aggregation-service remembers. It takes over what a listing needs, and nothing that says anything about a
person: neither guests nor payments come this far."""

from __future__ import annotations

from melmastoon.facts.search_aggregation import search_aggregation
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS search_house (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
        currency TEXT NOT NULL, PRIMARY KEY (tenant, property_id))""",
    """CREATE TABLE IF NOT EXISTS search_amenities (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, amenities TEXT NOT NULL, PRIMARY KEY (tenant, property_id))""",
    """CREATE TABLE IF NOT EXISTS search_room (
        tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
        archived INTEGER NOT NULL, PRIMARY KEY (tenant, room_id))""",
    """CREATE TABLE IF NOT EXISTS search_rate (
        tenant TEXT NOT NULL, rate_plan_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
        night_cents BIGINT NOT NULL, archived INTEGER NOT NULL, PRIMARY KEY (tenant, rate_plan_id))""",
    """CREATE TABLE IF NOT EXISTS search_night (
        tenant TEXT NOT NULL, booking_id TEXT NOT NULL, night TEXT NOT NULL, room_id TEXT NOT NULL,
        property_id TEXT NOT NULL, PRIMARY KEY (tenant, booking_id, night))""",
    "CREATE INDEX IF NOT EXISTS search_night_room ON search_night (tenant, room_id, night)",
    """CREATE TABLE IF NOT EXISTS search_closed (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, night TEXT NOT NULL,
        PRIMARY KEY (tenant, property_id, room_type, night))""",
    "CREATE TABLE IF NOT EXISTS search_tenant (tenant TEXT NOT NULL PRIMARY KEY, suspended INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS search_listing (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
        amenities TEXT NOT NULL, rooms INTEGER NOT NULL, nights_sold BIGINT NOT NULL, nights_closed BIGINT NOT NULL,
        from_cents BIGINT NOT NULL, currency TEXT NOT NULL, revision BIGINT NOT NULL, gone TEXT NOT NULL,
        PRIMARY KEY (tenant, property_id))""",
)


@search_aggregation.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

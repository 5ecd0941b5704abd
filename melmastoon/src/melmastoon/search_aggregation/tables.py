"""What search-aggregation-service remembers: one read model of all tenants. It takes over what a listing needs, and nothing
that says anything about a person: neither guests nor payments come this far."""

from __future__ import annotations

from melmastoon.facts.search_aggregation import ListingEvicted, ListingIndexed, search_aggregation
from melmastoon.tables import run
from posthouse import Model, Tx
from posthouse.store import Rows

listings = search_aggregation.projection(
    "listings", lag_budget=5.0, cross_tenant=True, publishes=[ListingEvicted, ListingIndexed]
)

TABLES = (
    """CREATE TABLE {house} (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
        currency TEXT NOT NULL, PRIMARY KEY (tenant, property_id))""",
    """CREATE TABLE {amenities} (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, amenities TEXT NOT NULL, PRIMARY KEY (tenant, property_id))""",
    """CREATE TABLE {room} (
        tenant TEXT NOT NULL, room_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
        archived INTEGER NOT NULL, PRIMARY KEY (tenant, room_id))""",
    """CREATE TABLE {rate} (
        tenant TEXT NOT NULL, rate_plan_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
        night_cents BIGINT NOT NULL, archived INTEGER NOT NULL, PRIMARY KEY (tenant, rate_plan_id))""",
    """CREATE TABLE {night} (
        tenant TEXT NOT NULL, booking_id TEXT NOT NULL, night TEXT NOT NULL, room_id TEXT NOT NULL,
        property_id TEXT NOT NULL, PRIMARY KEY (tenant, booking_id, night))""",
    "CREATE INDEX {night}_by_room ON {night} (tenant, room_id, night)",
    """CREATE TABLE {closed} (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, night TEXT NOT NULL,
        PRIMARY KEY (tenant, property_id, room_type, night))""",
    "CREATE TABLE {tenant} (tenant TEXT NOT NULL PRIMARY KEY, suspended INTEGER NOT NULL)",
    """CREATE TABLE {listing} (
        tenant TEXT NOT NULL, property_id TEXT NOT NULL, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
        amenities TEXT NOT NULL, rooms INTEGER NOT NULL, nights_sold BIGINT NOT NULL, nights_closed BIGINT NOT NULL,
        from_cents BIGINT NOT NULL, currency TEXT NOT NULL, revision BIGINT NOT NULL, gone TEXT NOT NULL,
        PRIMARY KEY (tenant, property_id))""",
)

NAMES = ("house", "amenities", "room", "rate", "night", "closed", "tenant", "listing")


@listings.setup
async def make_tables(model: Model) -> None:
    for table in TABLES:
        await write(model, table)


async def write(model: Model, sql: str, *values: str | int) -> Rows:
    """Run one statement on the tables of the generation that is being written: `{listing}` and its like are their names."""
    return await run(model, sql.format_map({name: model.table(name) for name in NAMES}), *values)


async def read(tx: Tx, sql: str, *values: str | int) -> Rows:
    """The same on those that readers see."""
    return await run(tx, sql.format_map({name: await listings.table(tx, name) for name in NAMES}), *values)

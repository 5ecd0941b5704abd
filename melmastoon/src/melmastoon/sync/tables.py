"""What sync-service remembers: one log per tenant, and for each desktop what it may see and how far it came."""

from __future__ import annotations

from melmastoon.facts.sync import sync
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    "CREATE TABLE IF NOT EXISTS sync_head (tenant TEXT NOT NULL PRIMARY KEY, position BIGINT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS sync_delta (
        tenant TEXT NOT NULL, position BIGINT NOT NULL, thing TEXT NOT NULL, thing_id TEXT NOT NULL,
        booking_id TEXT NOT NULL, property_id TEXT NOT NULL, guest_id TEXT NOT NULL, fact TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (tenant, position))""",
    "CREATE INDEX IF NOT EXISTS sync_delta_thing ON sync_delta (tenant, thing, thing_id, position)",
    "CREATE INDEX IF NOT EXISTS sync_delta_guest ON sync_delta (tenant, guest_id) WHERE guest_id <> ''",
    """CREATE TABLE IF NOT EXISTS sync_booking (
        tenant TEXT NOT NULL, booking_id TEXT NOT NULL, property_id TEXT NOT NULL, PRIMARY KEY (tenant, booking_id))""",
    """CREATE TABLE IF NOT EXISTS sync_device (
        tenant TEXT NOT NULL, device_id TEXT NOT NULL, property_id TEXT NOT NULL, reached BIGINT NOT NULL,
        bound INTEGER NOT NULL, PRIMARY KEY (tenant, device_id))""",
    """CREATE TABLE IF NOT EXISTS sync_mutation (
        tenant TEXT NOT NULL, mutation_id TEXT NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (tenant, mutation_id))""",
)


@sync.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

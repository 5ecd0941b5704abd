"""The tables of pricing."""

from __future__ import annotations

from melmastoon.facts.pricing import pricing
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """
CREATE TABLE IF NOT EXISTS rate_plans (
    tenant TEXT NOT NULL, rate_plan_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
    night_cents INTEGER NOT NULL, currency TEXT NOT NULL, archived INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, rate_plan_id)
)""",
    # Prices of single nights, which go before any plan. The revision counts changes of one night.
    """
CREATE TABLE IF NOT EXISTS calendar (
    tenant TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, night TEXT NOT NULL,
    night_cents INTEGER NOT NULL, revision INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (tenant, property_id, room_type, night)
)""",
    """
CREATE TABLE IF NOT EXISTS quotes (
    tenant TEXT NOT NULL, quote_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL, check_in TEXT NOT NULL,
    check_out TEXT NOT NULL, amount_cents INTEGER NOT NULL, currency TEXT NOT NULL, expires_at BIGINT NOT NULL,
    used_by TEXT NOT NULL DEFAULT '', PRIMARY KEY (tenant, quote_id)
)""",
    # What a booking was sold for.
    """
CREATE TABLE IF NOT EXISTS snapshots (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, property_id TEXT NOT NULL, room_type TEXT NOT NULL,
    currency TEXT NOT NULL, PRIMARY KEY (tenant, booking_id)
)""",
    """
CREATE TABLE IF NOT EXISTS snapshot_nights (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, night TEXT NOT NULL, night_cents INTEGER NOT NULL,
    PRIMARY KEY (tenant, booking_id, night)
)""",
    # Changes of dates; without a delta until the booking itself is known.
    """
CREATE TABLE IF NOT EXISTS changes (
    tenant TEXT NOT NULL, change_id TEXT NOT NULL, booking_id TEXT NOT NULL, check_in TEXT NOT NULL, check_out TEXT NOT NULL,
    heard INTEGER NOT NULL, delta_cents INTEGER, PRIMARY KEY (tenant, change_id)
)""",
    # One row for each booking that anything was heard of: whoever holds it works on the booking alone.
    "CREATE TABLE IF NOT EXISTS known_bookings (tenant TEXT NOT NULL, booking_id TEXT NOT NULL, PRIMARY KEY (tenant, booking_id))",
)


@pricing.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

"""The tables of lock integration."""

from __future__ import annotations

from melmastoon.facts.lock_integration import lock_integration
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    # One row for each booking. none: no key. unsure: the vendor failed to issue one, and may have it nevertheless. ending: it
    # is to be revoked, and must not be issued or changed any more. `turn` counts changes of the row: who asked the vendor
    # meanwhile sees that it asked for something outdated.
    """
CREATE TABLE IF NOT EXISTS keys (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, property_id TEXT NOT NULL, room_id TEXT NOT NULL, check_in TEXT NOT NULL,
    check_out TEXT NOT NULL, change_id TEXT NOT NULL DEFAULT '', manual INTEGER NOT NULL DEFAULT 0,
    ended TEXT NOT NULL DEFAULT '', turn INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'none' CHECK (state IN ('none', 'unsure', 'active', 'suspended', 'ending', 'revoked')),
    PRIMARY KEY (tenant, booking_id)
)""",
    # What the front desk has to do by hand.
    """
CREATE TABLE IF NOT EXISTS manual_queue (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, operation TEXT NOT NULL, reason TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open', PRIMARY KEY (tenant, booking_id, operation)
)""",
    """
CREATE TABLE IF NOT EXISTS devices (
    tenant TEXT NOT NULL, device_id TEXT NOT NULL, property_id TEXT NOT NULL, room_id TEXT NOT NULL, vendor TEXT NOT NULL,
    PRIMARY KEY (tenant, device_id)
)""",
    """
CREATE TABLE IF NOT EXISTS property_vendors (
    tenant TEXT NOT NULL, property_id TEXT NOT NULL, vendor TEXT NOT NULL, PRIMARY KEY (tenant, property_id)
)""",
)


@lock_integration.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

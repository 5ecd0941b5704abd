"""What tenant-service remembers."""

from __future__ import annotations

from melmastoon.facts.tenant import tenant
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS tenant_account (
        tenant TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL, country TEXT NOT NULL,
        suspended TEXT NOT NULL, revision INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tenant_role (
        tenant TEXT NOT NULL, user_id TEXT NOT NULL, role TEXT NOT NULL, granted_by TEXT NOT NULL,
        PRIMARY KEY (tenant, user_id, role))""",
    """CREATE TABLE IF NOT EXISTS tenant_setting (
        tenant TEXT NOT NULL, setting TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (tenant, setting))""",
)


@tenant.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

"""What iam-service remembers."""

from __future__ import annotations

from melmastoon.facts.iam import iam
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS iam_user (
        tenant TEXT NOT NULL, user_id TEXT NOT NULL, email TEXT NOT NULL, locale TEXT NOT NULL,
        PRIMARY KEY (tenant, user_id), UNIQUE (tenant, email))""",
    """CREATE TABLE IF NOT EXISTS iam_session (
        tenant TEXT NOT NULL, session_id TEXT NOT NULL, user_id TEXT NOT NULL, device_id TEXT NOT NULL,
        live INTEGER NOT NULL, PRIMARY KEY (tenant, session_id))""",
    """CREATE TABLE IF NOT EXISTS iam_device (
        tenant TEXT NOT NULL, device_id TEXT NOT NULL, user_id TEXT NOT NULL, property_id TEXT NOT NULL,
        bound INTEGER NOT NULL, PRIMARY KEY (tenant, device_id))""",
    """CREATE TABLE IF NOT EXISTS iam_factor (
        tenant TEXT NOT NULL, user_id TEXT NOT NULL, factor_id TEXT NOT NULL, factor TEXT NOT NULL,
        PRIMARY KEY (tenant, user_id, factor_id))""",
)


@iam.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

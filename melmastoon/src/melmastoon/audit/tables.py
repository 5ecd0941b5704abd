"""What audit-service remembers. The chain holds digests, not data: what says something about a person can be erased where it
is kept, and the chain still holds."""

from __future__ import annotations

from melmastoon.facts.audit import audit
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS audit_head (
        tenant TEXT NOT NULL PRIMARY KEY, position BIGINT NOT NULL, hash TEXT NOT NULL, day TEXT NOT NULL,
        day_begins BIGINT NOT NULL, peaks TEXT NOT NULL, root TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS audit_entry (
        tenant TEXT NOT NULL, position BIGINT NOT NULL, entry_id TEXT NOT NULL, about TEXT NOT NULL, day TEXT NOT NULL,
        said_at TEXT NOT NULL, digest TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (tenant, position),
        UNIQUE (tenant, entry_id))""",
    """CREATE TABLE IF NOT EXISTS audit_anchor (
        tenant TEXT NOT NULL, day TEXT NOT NULL, first_position BIGINT NOT NULL, entries BIGINT NOT NULL,
        root TEXT NOT NULL, PRIMARY KEY (tenant, day))""",
)


@audit.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

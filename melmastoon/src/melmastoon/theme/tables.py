"""What theme-config-service remembers."""

from __future__ import annotations

from melmastoon.facts.theme import theme
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS theme_preset (
        tenant TEXT NOT NULL, preset_id TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL,
        PRIMARY KEY (tenant, preset_id))""",
    """CREATE TABLE IF NOT EXISTS theme_brand (
        tenant TEXT NOT NULL, brand_id TEXT NOT NULL, preset_id TEXT NOT NULL, primary_colour TEXT NOT NULL,
        accent_colour TEXT NOT NULL, font TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (tenant, brand_id))""",
    """CREATE TABLE IF NOT EXISTS theme_block (
        tenant TEXT NOT NULL, block_id TEXT NOT NULL, page TEXT NOT NULL, locale TEXT NOT NULL, content TEXT NOT NULL,
        content_hash TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (tenant, block_id))""",
)


@theme.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

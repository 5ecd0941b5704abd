"""What file-storage-service remembers. Contents are base64, which both databases keep as they are."""

from __future__ import annotations

from melmastoon.facts.file import file
from melmastoon.tables import run
from posthouse import Tx

OBJECTS = """CREATE TABLE IF NOT EXISTS file_object (
    tenant TEXT NOT NULL, file_id TEXT NOT NULL, purpose TEXT NOT NULL, media_type TEXT NOT NULL, sha256 TEXT NOT NULL,
    content TEXT NOT NULL, verdict TEXT NOT NULL, PRIMARY KEY (tenant, file_id))"""


@file.setup
async def make_tables(tx: Tx) -> None:
    await run(tx, OBJECTS)

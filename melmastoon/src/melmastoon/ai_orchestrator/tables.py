"""What ai-orchestrator-service remembers. Guests are known by the digest of their address alone, until they are erased."""

from __future__ import annotations

from melmastoon.facts.ai_orchestrator import ai_orchestrator
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    "CREATE TABLE IF NOT EXISTS ai_guest (tenant TEXT NOT NULL, guest TEXT NOT NULL, PRIMARY KEY (tenant, guest))",
    """CREATE TABLE IF NOT EXISTS ai_stay (
        tenant TEXT NOT NULL, booking_id TEXT NOT NULL, guest_id TEXT NOT NULL, guest TEXT NOT NULL, check_in TEXT NOT NULL,
        check_out TEXT NOT NULL, live INTEGER NOT NULL, PRIMARY KEY (tenant, booking_id))""",
    "CREATE INDEX IF NOT EXISTS ai_stay_guest ON ai_stay (tenant, guest)",
    """CREATE TABLE IF NOT EXISTS ai_trouble (
        tenant TEXT NOT NULL, kind TEXT NOT NULL, place TEXT NOT NULL, times INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, place))""",
    """CREATE TABLE IF NOT EXISTS ai_anomaly (
        tenant TEXT NOT NULL, anomaly_id TEXT NOT NULL, provenance TEXT NOT NULL, decision TEXT NOT NULL,
        PRIMARY KEY (tenant, anomaly_id))""",
    """CREATE TABLE IF NOT EXISTS ai_completion (
        tenant TEXT NOT NULL, completion_id TEXT NOT NULL, outcome TEXT NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY (tenant, completion_id))""",
    """CREATE TABLE IF NOT EXISTS ai_inference (
        tenant TEXT NOT NULL, inference_id TEXT NOT NULL, device_id TEXT NOT NULL, result TEXT NOT NULL,
        PRIMARY KEY (tenant, inference_id))""",
)


@ai_orchestrator.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

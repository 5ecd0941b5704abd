"""What analytics-service remembers: sums, which no order of facts can change."""

from __future__ import annotations

from melmastoon.facts.analytics import analytics
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS analytics_tenant (
        tenant TEXT NOT NULL PRIMARY KEY, latest_day TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS analytics_day (
        tenant TEXT NOT NULL, day TEXT NOT NULL, facts BIGINT NOT NULL, said BIGINT NOT NULL, PRIMARY KEY (tenant, day))""",
    """CREATE TABLE IF NOT EXISTS analytics_figure (
        tenant TEXT NOT NULL, day TEXT NOT NULL, figure TEXT NOT NULL, value BIGINT NOT NULL,
        PRIMARY KEY (tenant, day, figure))""",
)


@analytics.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)

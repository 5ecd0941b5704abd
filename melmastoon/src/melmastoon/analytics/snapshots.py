"""Snapshots: the figures of a day, said when the day is over, when something late changed it, or when somebody asks."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.analytics import SnapshotComputed
from melmastoon.tables import run, typed
from posthouse import Tx

FIRST_SIGHT = "INSERT INTO analytics_tenant (tenant, latest_day) VALUES (?, '') ON CONFLICT DO NOTHING"
LOCK = "SELECT latest_day FROM analytics_tenant WHERE tenant = ? FOR UPDATE"
MOVE_ON = "UPDATE analytics_tenant SET latest_day = ? WHERE tenant = ? AND latest_day < ?"
ADD = """INSERT INTO analytics_figure (tenant, day, figure, value) VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, day, figure) DO UPDATE SET value = analytics_figure.value + excluded.value"""
COUNT = """INSERT INTO analytics_day (tenant, day, facts, said) VALUES (?, ?, 1, 0)
    ON CONFLICT (tenant, day) DO UPDATE SET facts = analytics_day.facts + 1"""
UNSAID = """SELECT d.day, d.facts FROM analytics_day d JOIN analytics_tenant t ON t.tenant = d.tenant
    WHERE d.tenant = ? AND d.day < t.latest_day AND d.said < d.facts ORDER BY d.day"""
DAY = "SELECT facts FROM analytics_day WHERE tenant = ? AND day = ?"
FIGURES = "SELECT figure, value FROM analytics_figure WHERE tenant = ? AND day = ?"
SAID = "UPDATE analytics_day SET said = ? WHERE tenant = ? AND day = ?"


async def lock(tx: Tx) -> None:
    """The figures of a tenant change in one transaction at a time."""
    await run(tx, FIRST_SIGHT, tx.tenant)
    await run(tx, LOCK, tx.tenant)


async def add(tx: Tx, day: str, figure: str, value: int) -> None:
    """Add one fact to its day. Whoever calls holds the lock."""
    await run(tx, COUNT, tx.tenant, day)
    await run(tx, ADD, tx.tenant, day, figure, value)
    await run(tx, MOVE_ON, day, tx.tenant, day)


async def finished(tx: Tx) -> list[SnapshotComputed]:
    """Snapshots of the days that are over and changed since they were said last. Whoever calls holds the lock."""
    days = typed(await run(tx, UNSAID, tx.tenant), tuple[str, int])
    return [await _snapshot(tx, day, facts) for day, facts in days]


async def of_day(tx: Tx, day: str) -> SnapshotComputed | None:
    """The snapshot of one day as it is now; None when nothing is known of it. Whoever calls holds the lock."""
    known = typed(await run(tx, DAY, tx.tenant, day), tuple[int])
    return await _snapshot(tx, day, known[0][0]) if known else None


async def _snapshot(tx: Tx, day: str, facts: int) -> SnapshotComputed:
    figures = dict(typed(await run(tx, FIGURES, tx.tenant, day), tuple[str, int]))
    await run(tx, SAID, facts, tx.tenant, day)
    return SnapshotComputed(
        snapshot_id=day,
        day=date.fromisoformat(day),
        revision=facts,
        held=figures.get("held", 0),
        confirmed=figures.get("confirmed", 0),
        cancelled=figures.get("cancelled", 0),
        checked_in=figures.get("checked_in", 0),
        checked_out=figures.get("checked_out", 0),
        no_shows=figures.get("no_shows", 0),
        oversells_blocked=figures.get("oversells_blocked", 0),
        captured_cents=figures.get("captured_cents", 0),
        refunded_cents=figures.get("refunded_cents", 0),
    )

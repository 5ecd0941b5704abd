"""Projections: read models, how fresh they are, and how far a rebuild is."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page
from posthouse.console.listing import everybodys
from posthouse.events import timestamp
from posthouse.processes import ProjectionStatus
from posthouse.processes.projection import GenerationStatus


async def projections(ask: Ask) -> object:
    """Every projection with its generations: the one that is read, one that is being built, and those that were kept."""
    everybodys(ask, "Read models are made of events")
    found = await ask.each(_of)
    return {"items": [one for some in found.values() for one in some]}


async def _of(app: App) -> list[Mapping[str, object]]:
    if not app.projections.declared:
        return []
    owners = {one.consumer: of.name for of in app.services for one in of.declared.projections.values()}
    return [_facts(one, owners.get(one.consumer, app.opened.name)) for one in await app.projections.status()]


def verdict(status: ProjectionStatus, one: GenerationStatus) -> str:
    """How a generation stands, in a word."""
    row = one.generation
    if row.state != "live":
        return row.state
    if row.version != status.version:
        return "older" if row.version < status.version else "newer"
    if one.freshness.partial:
        return "partial"
    if one.freshness.held:
        return "held"
    return "fresh" if one.freshness.within else "late"


def _facts(status: ProjectionStatus, service: str) -> Mapping[str, object]:
    live = status.live
    return {
        "service": service,
        "name": status.name,
        "consumer": status.consumer,
        "version": status.version,
        "cross_tenant": status.cross_tenant,
        "state": "none" if live is None else verdict(status, live),
        "building": status.building is not None,
        "generations": [_generation(status, one) for one in status.generations],
    }


def _generation(status: ProjectionStatus, one: GenerationStatus) -> Mapping[str, object]:
    row, fresh = one.generation, one.freshness
    return {
        "number": row.number,
        "version": row.version,
        "state": row.state,
        "verdict": verdict(status, one),
        "group": one.group,
        "source": row.source,
        "phase": row.phase,
        "read": row.read,
        "waiting": fresh.waiting,
        "held": fresh.held,
        "seconds": fresh.seconds,
        "lag": fresh.lag,
        "budget": fresh.budget,
        "tables": row.tables,
        "owner": row.owner,
        "made_at": _time(row.made_at),
        "live_at": _time(row.live_at),
        "retired_at": _time(row.retired_at),
        "drop_at": _time(row.drop_at),
        "applied_at": _time(row.applied_at),
    }


def _time(at: float | None) -> str | None:
    return timestamp(at) if at else None


PAGES: Mapping[str, Page] = {"/projections": projections}

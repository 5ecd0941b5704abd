"""Jobs: what is done to many things, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from posthouse.app import App
from posthouse.console.acting.bulk import TITLES, shown
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.jobs import left_out
from posthouse.store.jobs import ENDED, Job

MOST = 200


async def listed(ask: Ask) -> object:
    """Newest first, of all services or of one."""
    limit, before = _limit(ask), ask.query.get("after", "")
    asked = ask.query.get("service")

    async def find(app: App) -> Sequence[Job]:
        names = [service.name for service in app.services if asked in (None, "", service.name)]
        return await app.store.jobs.find(names, before=before, limit=limit + 1)

    answers = await ask.each(find, [asked] if asked else None)
    found = sorted((job for jobs in answers.values() for job in jobs), key=lambda job: job.id, reverse=True)
    page = found[:limit]
    return {
        "items": [facts(job) for job in page if shown(job, ask.who.tenants)],
        "next": page[-1].id if len(found) > limit else None,
    }


async def one(ask: Ask) -> object:
    """One job, whole."""
    service, id = ask.path["service"], ask.path["id"]

    async def get(app: App) -> Job | None:
        return await app.store.jobs.get(id)

    job = await ask.one(service, get)
    if job is None or job.service != service or not shown(job, ask.who.tenants):
        raise Refusal(404, f"{service} has no job {id}.", "Jobs are kept for as long as the operators' log.")
    return facts(job)


def facts(job: Job) -> Mapping[str, object]:
    """As the interface shows it; `says` is the state in a sentence."""
    return {
        "id": job.id,
        "service": job.service,
        "act": job.act,
        "title": TITLES.get(job.act, (job.act, "", ""))[0],
        "which": _which(job),
        "by": job.by,
        "why": job.why,
        "state": job.state,
        "says": says(job),
        "total": job.total,
        "more": job.more,
        "done": job.done,
        "refused": job.refused,
        "applied": job.applied,
        "failed": job.failed,
        "open": len(job.open),
        "rate": job.rate,
        "canary": job.canary,
        "canary_passed": job.canary_passed,
        "stop_after": job.stop_after,
        "last": str(job.last),
        "note": job.note,
        "ended": job.state in ENDED,
        "created_at": _time(job.created_at),
        "changed_at": _time(job.changed_at),
        "ended_at": None if job.ended_at is None else _time(job.ended_at),
    }


def says(job: Job) -> str:
    """How it stands, in a sentence."""
    gone = job.done + job.refused
    if not job.total and job.state in ("running", "done"):  # of one step, which says itself how far it is
        return (job.note or "begins").removesuffix(".")[:1].upper() + (job.note or "begins").removesuffix(".")[1:] + "."
    match job.state:
        case "running" if job.canary and not job.canary_passed and job.done >= job.canary and job.open:
            return f"Waits for the outcome of the first {job.canary:,}: {len(job.open):,} were not run yet."
        case "running" if job.leased <= 0 and not gone:
            return "Waits for a console to take it up."
        case "running" if job.leased <= 0:
            return "The console that ran it is gone; another goes on within seconds."
        case "running":
            return f"Is at {gone:,} of {job.total:,}{'+' if job.more else ''}."
        case "paused":
            return f"Paused at {gone:,} of {job.total:,}{'+' if job.more else ''}."
        case "stopped" | "failed":
            return f"Stopped: {job.note}."
        case "cancelled":
            return f"Cancelled after {gone:,}."
        case _:
            failed = f", {job.failed:,} of them failed again" if job.failed else ""
            left = left_out(job)
            changed = f" {left:,} left out: changed after the press." if left else ""
            return f"Done: {job.done:,}{failed}.{changed}"


def _which(job: Job) -> Mapping[str, object]:
    asked = msgspec.json.decode(job.parameters, type=dict[str, object])
    return {name: value for name, value in asked.items() if value is not None and name not in HOW}


HOW = ("rate", "canary", "stop_after")


def _limit(ask: Ask) -> int:
    given = ask.query.get("limit", "50")
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:6]) <= MOST or len(given) > 6:
        raise Refusal(400, f"limit={given[:40]!r} is no number from 1 to {MOST}.")
    return int(given)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


PAGES: dict[str, Page] = {"/jobs": listed, "/jobs/{service}/{id}": one}

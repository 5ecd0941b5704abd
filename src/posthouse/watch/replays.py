"""Replays that stand still: what they have closed waits until somebody decides about them."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.app import App
from posthouse.checks import Check
from posthouse.errors import PosthouseError
from posthouse.store import has_process_tables
from posthouse.store.jobs import Job

ACT = "replay"
LATEST = 1_000
"""Among so many jobs they are looked for."""


async def still(app: App) -> Sequence[Job]:
    """Replays of the services of an App that are paused, or that nobody runs. Nothing where the store cannot say it."""
    if not has_process_tables(app.store):
        return []
    found = await app.store.jobs.find([service.name for service in app.services], limit=LATEST)
    return [
        job
        for job in found
        if job.act == ACT and (job.state == "paused" or (job.state == "running" and job.leased <= 0))
    ]


def words_of(job: Job) -> str:
    """How it stands, and what follows from that."""
    how = "is run by nobody" if job.state == "running" else "is paused"
    return f"the replay {job.id} of {job.service} {how}: keys that it has closed apply nothing meanwhile"


def fix_of(job: Job) -> str:
    """What to do about it."""
    on = "`posthouse jobs run TARGET`" if job.state == "running" else f"`posthouse jobs resume TARGET {job.id}`"
    return f"{on} lets it go on (`jobs show` says why it stands), `posthouse jobs cancel TARGET {job.id}` ends it and opens its keys"


async def replay_checks(app: App) -> list[Check]:
    """Nothing where none stands still."""
    try:
        await app.opened.look()
        return [
            Check(name=f"replay {job.id}", found=words_of(job), judgement="warn", fix=fix_of(job))
            for job in await still(app)
        ]
    except PosthouseError:  # the store's own checks say it
        return []

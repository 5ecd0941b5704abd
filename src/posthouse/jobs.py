"""Jobs of one step: what is done at one stretch, for as long as its lease is somebody's, and is begun again by whoever takes it up.
Consoles run them, and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from posthouse.app import app_of
from posthouse.errors import GrantNeeded, PosthouseError, ReplayPaused
from posthouse.redaction import redacted, words_of
from posthouse.service import Service
from posthouse.store import Action, Store
from posthouse.store.actions import BEGUN
from posthouse.store.jobs import Job, JobState

LEASE = 5.0
"""Seconds after which another process takes up the job of one that died."""
LOOK = 1.0
"""Seconds between two looks at what somebody decided about it."""

Told = Callable[[int, int], None]
"""Hears how far it is: done, and of how many."""
Work = Callable[[Service, Job, Told], Awaitable[str]]
"""Does all of it, and returns what came of it. GrantNeeded and ReplayPaused pause it, any other error of ours is its end."""


class Lost(Exception):
    """The lease is another's now."""


def begun(job: Job) -> Action:
    """The job in the operators' log, as it begins."""
    return Action(
        id=job.id,
        verb="job start",
        by=job.by,
        why=job.why,
        service=job.service,
        target=f"job {job.id}: {job.act}",
        count=0,
        outcome=BEGUN,
        changed={"up to": (None, str(job.last)), "which": (None, job.parameters.decode())},
    )


def ended(job: Job, state: JobState) -> Action:
    """And as it ended."""
    changed: Mapping[str, tuple[object, object]] = {
        "done": (None, job.done),
        "refused": (None, job.refused),
        "applied": (None, job.applied),
        "failed again": (None, job.failed),
    }
    if state == "done" and (left := left_out(job)):
        changed = {**changed, "changed after the press": (None, left)}
    return msgspec.structs.replace(begun(job), outcome=state, count=job.done, changed=changed)


def left_out(job: Job) -> int:
    """Of one that is through: how many were counted and have changed since, so that nothing was done to them; 0 where not all
    were counted."""
    return 0 if job.more else max(0, job.total - job.done - job.refused)


async def pause(store: Store, job: Job) -> None:
    """Until somebody resumes it: its note says why."""
    async with store.begin() as tx:
        await store.jobs.decide(tx, job.id, "paused")


class WholeRun:
    """A job of one step, as long as its lease is ours: begun again by whoever takes it up."""

    def __init__(self, service: Service, job: Job, work: Work, *, lease: float = LEASE, look: float = LOOK) -> None:
        self._service, self._store = service, app_of(service).store
        self.job = job
        self._work = work
        self._lease, self._look = lease, look

    async def whole(self) -> None:
        """To its end, or until somebody pauses or cancels it."""
        work = asyncio.ensure_future(self._work(self._service, self.job, self._hear))
        try:
            while not work.done():
                if await self._kept() != "running":
                    return
                await asyncio.wait([work], timeout=self._look)
            try:
                self._note(note=work.result())
                state: JobState = "done"
            except (GrantNeeded, ReplayPaused) as error:
                self._note(note=redacted(words_of(error)))
                if await self._kept() == "running":
                    await pause(self._store, self.job)
                await self.give_back()
                return
            except PosthouseError as error:
                self._note(note=redacted(words_of(error)))
                state = "failed"
            async with self._store.begin() as tx:
                await self._store.actions.end(tx, ended(self.job, state))
            await self._store.jobs.save(self.job, 0.0, ended=state)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def give_back(self) -> None:
        """Let another process go on at once."""
        await self._store.jobs.save(self.job, 0.0)

    async def _kept(self) -> JobState:
        """Keep the lease; in which state it is. Lost where it is another's."""
        state = await self._store.jobs.save(self.job, self._lease)
        if state is None:
            raise Lost
        return state

    def _hear(self, done: int, total: int) -> None:
        self._note(done=done, note=f"{done:,} of {total:,} events")

    def _note(self, **changed: object) -> None:
        self.job = msgspec.structs.replace(self.job, **changed)

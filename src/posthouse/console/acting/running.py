"""Running: jobs go on in whatever console is there. A lease keeps two of them from running one; what was done to an item is in the
operators' log under an id that is made of the job's and the item's, so that no item is done twice, whoever dies when."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import time
import uuid
from collections.abc import Sequence
from functools import partial

import msgspec

from posthouse.app import App, app_of
from posthouse.clock import new_id
from posthouse.console.access.guard import OPERATOR
from posthouse.console.acting.kind import PAGE, FailedAgain, Item, Kind
from posthouse.console.acting.kinds import KINDS
from posthouse.console.acting.pressing import WAITS
from posthouse.console.acting.replaying import WHOLE
from posthouse.console.estate import Estate
from posthouse.errors import (
    ChangedSince,
    ConfigurationError,
    DeskError,
    DoneAlready,
    GrantNeeded,
    StoreBusy,
)
from posthouse.jobs import LEASE, LOOK, Lost, WholeRun, ended, pause
from posthouse.operators import SIGNED_IN, plain, pressed
from posthouse.redaction import redacted, words_of
from posthouse.service import Service
from posthouse.store.actions import of_item
from posthouse.store.jobs import Job, JobState, Open
from posthouse.store.patience import waiting_at_most
from posthouse.trust.rights import signed_in

log = logging.getLogger("posthouse.console.jobs")

MOST_OPEN = 500
"""Items whose outcome is not known; then it waits."""
LINGER = 30.0
"""Seconds that are waited at the end for outcomes."""
AT_ONCE = 4
"""Jobs that one console runs."""
CHANGES = 5
"""How often an item is looked at again that somebody changed in between."""


def item_key(job: str, item: int) -> str:
    """Under which id the act on an item of a job is in the operators' log: the same in every console."""
    return str(uuid.uuid5(uuid.UUID(job), str(item)))


class Runner:
    """Looks for jobs of the services of an estate and runs them, until it is closed."""

    def __init__(self, estate: Estate, *, lease: float = LEASE, look: float = LOOK) -> None:
        self._estate = estate
        self._lease, self._look = lease, look
        self._holder = new_id()
        self._loop: asyncio.Task[None] | None = None
        self._runs: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin, unless it has."""
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(
                self._seek(), name="posthouse console: jobs", context=contextvars.Context()
            )  # not as part of the request that began it

    async def aclose(self) -> None:
        """Stop between two items; another console may go on at once."""
        tasks = [task for task in (self._loop, *self._runs.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = None

    async def _seek(self) -> None:
        while True:
            try:
                while len(self._runs) < AT_ONCE and await self._taken():
                    pass
            except Exception:
                log.exception("jobs could not be looked for")
            await asyncio.sleep(self._look)

    async def _taken(self) -> bool:
        """Take what is free of each store, and can be run here; whether there was any. What runs here is not free, also where an item
        waited for longer than the lease."""

        async def take(app: App) -> Job | None:
            here = [service.name for service in app.services if service.name in self._estate.services]
            acts, besides = [*KINDS, *WHOLE], [*self._runs]
            return await app.store.jobs.take(here, self._holder, self._lease, acts=acts, besides=besides)

        told = await self._estate.each(take)
        jobs = [job for job in told.found.values() if job is not None]
        for job in jobs:
            task = asyncio.create_task(self._run(job), name=f"posthouse console: job {job.id}")
            self._runs[job.id] = task
            task.add_done_callback(partial(self._forget, job.id))
        return bool(jobs)

    def _forget(self, id: str, _: asyncio.Task[None]) -> None:
        del self._runs[id]

    async def _run(self, job: Job) -> None:
        service = self._estate.services[job.service]
        pace = {"lease": self._lease, "look": self._look}
        work = WHOLE.get(job.act)
        run = Run(service, job, **pace) if work is None else WholeRun(service, job, work, **pace)
        try:
            with signed_in(
                job.by.endswith(SIGNED_IN) and plain(job.by) != OPERATOR.name
            ):  # as whoever pressed for it had
                await run.whole()
        except Lost:
            log.info("job %s is run by another console", job.id)
        except asyncio.CancelledError:
            await run.give_back()
            raise
        except Exception as error:  # a store that is away, a bug: the lease runs out, and it is tried again
            log.warning("job %s stands still: %s", job.id, redacted(words_of(error)))


class Run:
    """One job, item by item, as long as its lease is ours."""

    def __init__(self, service: Service, job: Job, *, lease: float = LEASE, look: float = LOOK) -> None:
        self._service, self._app = service, app_of(service)
        self._kind: Kind = KINDS[job.act]
        self.job = job
        self.state: JobState = job.state
        self._lease, self._look = lease, look
        self._items: list[Item] = []
        self._after = job.position
        self._over = False
        self._next_at = 0.0
        self._begun: Open | None = None
        self._learnt_at = -math.inf
        self._saving = asyncio.Lock()

    async def whole(self) -> None:
        """To its end, or until somebody pauses or cancels it. The lease is kept by the clock, however long an item waits."""
        work = asyncio.ensure_future(self._through())
        try:
            while not (await asyncio.wait([work], timeout=max(self._lease, 1.0) / 3))[0]:
                await self._save()
            work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        await self.give_back()

    async def _through(self) -> None:
        await self._take_up()
        waited = 0.0
        while self.state == "running":
            await self._learn()
            if (why := self._why_stop()) is not None:
                await self._end("stopped", why)
            elif self._waits():
                await self._wait(self._look)
            elif (item := await self._following()) is not None:
                waited = 0.0
                await self._deal(item)
            elif self.job.open and waited < LINGER:
                await self._wait(self._look)
                waited += self._look
            else:
                await self._end("done", _last_words(self.job))

    async def give_back(self) -> None:
        """Let another console go on at once, also with an item that was begun."""
        await self._app.store.jobs.save(self._written(), 0.0)

    # Steps.

    async def _take_up(self) -> None:
        """Whoever had it before may have died between an act and its note: what was begun is dealt with first."""
        begun = [one for one in self.job.open if one.begun]
        self._note(open=tuple(one for one in self.job.open if not one.begun))
        for one in begun:
            self._begun = one
            await self._act(Item(one.id, one.tenant, one.turn))
        self._after = self.job.position

    async def _learn(self) -> None:
        """What became of those that were acted on; not asked again before a look is over, however fast items follow."""
        now = time.monotonic()
        if not self.job.open or now < self._learnt_at + self._look:
            return
        self._learnt_at = now
        results = await self._kind.results(self._app, self.job.open)
        found = list(results.values())
        self._note(
            applied=self.job.applied + found.count("applied"),
            failed=self.job.failed + found.count("failed"),
            open=tuple(one for one in self.job.open if results[one.id] == "unknown"),
        )

    def _why_stop(self) -> str | None:
        job = self.job
        if job.stop_after and job.failed >= job.stop_after:
            return f"{job.failed:,} failed again, and it was to stop after {job.stop_after:,}"
        if self._in_canary() and job.failed:
            return f"{job.failed:,} of the first {job.canary:,} failed again: the rest was not touched"
        return None

    def _in_canary(self) -> bool:
        return bool(self.job.canary) and not self.job.canary_passed

    def _waits(self) -> bool:
        """For the outcome of the first ones, or because too many are under way."""
        job = self.job
        if self._in_canary() and job.done >= job.canary:
            if job.open:
                return True
            self._note(canary_passed=True)
        return len(job.open) >= MOST_OPEN

    async def _following(self) -> Item | None:
        while not self._items and not self._over:
            items, after = await self._kind.page(self._service, self.job, self._after, PAGE)
            self._items, self._over = list(items), after is None
            self._after = after or self._after
        return self._items.pop(0) if self._items else None

    async def _deal(self, item: Item) -> None:
        """One item: at its time, noted as begun, acted on."""
        await self._pace()
        self._begun = Open(item.id, item.turn, item.tenant, True)
        await self._save()
        if self.state == "running":
            await self._act(item)
        self._begun = None

    async def _act(self, item: Item) -> None:
        """Act, unless it was done; refusals are counted. `position` moves past it."""
        job, refusal = self.job, "it was changed by somebody else at each look"
        for _ in range(CHANGES):
            try:
                done = await self._acted(item)
            except ChangedSince:
                continue
            except GrantNeeded as error:
                if error.over:  # the item is none that was dealt with: it is the next one's
                    self._note(note=redacted(words_of(error)))
                    await self._save()
                    await pause(self._app.store, self.job)
                    self.state = "paused"
                    return
                refusal = redacted(words_of(error))
                break
            except (DeskError, ConfigurationError, StoreBusy) as error:
                refusal = redacted(words_of(error))
                break
            except FailedAgain as error:
                refusal = redacted(str(error))
                self._note(failed=job.failed + 1)
                break
            self._note(position=item.id)
            if done is not None:
                opened = (*job.open, Open(done.id, done.turn, done.tenant)) if self._kind.judged else job.open
                self._note(done=job.done + 1, open=opened)
            self._begun = None
            return
        self._note(position=item.id, refused=job.refused + 1, note=f"The last refusal: {refusal}")
        self._begun = None

    async def _acted(self, item: Item) -> Item | None:
        """The item in its turn after the act, now or by whoever had the job before; None when it is none of ours any more."""
        job, key = self.job, item_key(self.job.id, item.id)
        now = await self._kind.find(self._service, job, item.id)
        if now is None:
            done = await self._app.store.actions.get(item.tenant, key) is not None
            return self._after_act(item) if done else None
        try:
            with waiting_at_most(WAITS), pressed(key, now.turn if self._kind.fenced else None):
                await self._kind.do(self._service, job, now, job.by, of_item(job.why, job.id))
        except DoneAlready:
            return now
        return self._after_act(now)

    def _after_act(self, item: Item) -> Item:
        return msgspec.structs.replace(item, turn=item.turn + 1) if self._kind.fenced else item

    async def _end(self, state: JobState, words: str) -> None:
        self._note(note=words)
        async with self._app.store.begin() as tx:  # first the log: whoever dies here ends it once more
            await self._app.store.actions.end(tx, ended(self.job, state))
        await self._save(ended=state)

    # What they are made of.

    def _note(self, **changed: object) -> None:
        self.job = msgspec.structs.replace(self.job, **changed)

    def _written(self) -> Job:
        begun = () if self._begun is None else (self._begun,)
        return msgspec.structs.replace(self.job, open=(*self.job.open, *begun))

    async def _save(self, *, ended: JobState | None = None) -> None:
        async with self._saving:  # one after the other: never how far it was over how far it is
            state = await self._app.store.jobs.save(self._written(), self._lease, ended=ended)
        if state is None:
            raise Lost
        self.state = state

    async def _wait(self, seconds: float) -> None:
        await self._save()
        await asyncio.sleep(seconds)
        if self._in_canary():  # somebody may have said that it need not wait
            known = await self._app.store.jobs.get(self.job.id)
            if known is not None and known.canary_passed:
                self._note(canary_passed=True)

    async def _pace(self) -> None:
        """Not faster than was asked for, however slow the items before were."""
        now = time.monotonic()
        while (left := self._next_at - now) > 0 and self.state == "running":
            await asyncio.sleep(min(left, self._look))
            if left > self._look:
                await self._save()
            now = time.monotonic()
        self._next_at = max(now, self._next_at) + 1 / self.job.rate


def _last_words(job: Job) -> str:
    parts: Sequence[str] = [
        f"{len(job.open):,} were not run yet: is a worker running?" if job.open else "",
        job.note if job.refused else "",
    ]
    return " ".join(part for part in parts if part)

"""Running: a replay feeds one consumer with what was put aside for it, key by key, over no topic: nobody else sees anything.

What holds at every moment, whoever dies, pauses or cancels:

1. An event that was put aside is applied once: its row goes in the transaction of its handler. Two owners of a job meet at that row.
2. Per key, what is applied again comes in the order of its numbers, whatever order the source had, and none is passed over: one that
   fails keeps those behind it waiting.
3. While a key is replayed its head is closed (a range without an end: from before its events are put aside, so that nothing that is
   newer was applied before them): what comes behind it live is held as blocked, in order, and nothing that is held of it
   runs. The head itself stays where it is: redeliveries of what it has passed are duplicates, as ever.
4. A key is opened in the transaction of its last event that was applied before, and goes on with what waits. So it is open, or has
   such events left, or its owner is just beginning with it.
5. Whatever ends the job (done, failed, cancelled, by whomever) forgets what is left and opens its keys in the same transaction. A key
   is closed only while its job runs: a row lock decides between the two.
6. What was not applied before goes the way of every event, through inbox and order, once its key is open.
7. A job counts what is left, never what it did: after a resume the figures are the same.
8. Until everything is put aside nothing is applied; whoever takes over in that time begins it anew.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial

import msgspec

from posthouse.clock import backoff
from posthouse.errors import ReplayPaused
from posthouse.history.replay.applying import AWAY, Applier, NotApplied
from posthouse.receiving import Executor
from posthouse.receiving.policy import Again, decide
from posthouse.redaction import redacted, words_of
from posthouse.store.replays import Line, Staged, Standing

log = logging.getLogger("posthouse.replay")

PAGE = 200
LINES = 100
AT_ONCE = 8
"""Keys that are replayed side by side, where the store can have so many transactions."""
FIRST_PAUSE, LAST_PAUSE = 0.2, 5.0
"""Seconds until the next try while the database is in trouble."""
DONE = 0.0
"""Nothing more is to be tried."""

Told = Callable[[int, int], None]
Turn = Callable[[], Awaitable[None]]
"""Waits until the next event may be applied. GrantNeeded when none may."""


class Owner(msgspec.Struct, frozen=True):
    """Whoever has the lease of a job; `resumed`: somebody had it before."""

    job: str
    token: int

    @property
    def resumed(self) -> bool:
        return self.token > 1


class Run:
    """One run of a replay whose events are put aside. `closed` are keys that this owner has closed already."""

    def __init__(self, executor: Executor, owner: Owner, turn: Turn, told: Told, closed: Collection[Line] = ()) -> None:
        self._executor = executor
        self._table = executor.store.replays
        self._owner = owner
        self._turn = turn
        self._told = told
        self._applier = Applier(executor, owner.job, owner.token)
        self._done = self._total = 0
        self._taking = asyncio.Lock()
        self._later: list[tuple[float, Line]] = []
        """Lines that failed, and when they are tried again."""
        self._still: set[str] = set()
        self._closed = closed
        self._opened: set[Line] = set()
        """Keys that were opened with their last event."""

    async def whole(self) -> None:
        """To its end. ReplayPaused when some of it stands still, GrantNeeded when it may not go on: both can be resumed."""
        standing = await self._table.standing(self._owner.job)
        if standing is None:
            raise ReplayPaused("its events were not put aside")
        self._done, self._total = standing.done, standing.staged
        self._told(self._done, self._total)
        lines = self._lines()
        workers = max(1, min(AT_ONCE, self._executor.store.writers))
        await _all([self._work(lines) for _ in range(workers)])
        standing = await self._table.standing(self._owner.job)
        if standing is not None and standing.left:
            raise ReplayPaused(_left(standing))
        if standing is not None:
            self._told(standing.done, standing.staged)

    async def _lines(self) -> AsyncIterator[Line]:
        after: Line | None = None
        while page := await self._table.lines(self._owner.job, after, LINES):
            for line in page:
                yield line
            after = page[-1]

    async def _work(self, lines: AsyncIterator[Line]) -> None:
        while (line := await self._next(lines)) is not None:
            after = await (self._in_order(line) if line.ordered else self._alone(line))
            if after is not None:
                heapq.heappush(self._later, (time.monotonic() + after, line))

    async def _next(self, lines: AsyncIterator[Line]) -> Line | None:
        """A line whose next try is due, else one that was not begun, else the one that is due first."""
        async with self._taking:
            if self._later and self._later[0][0] <= time.monotonic():
                return heapq.heappop(self._later)[1]
            if (line := await anext(lines, None)) is not None:
                return line
            if not self._later:
                return None
            due, line = heapq.heappop(self._later)
        await asyncio.sleep(due - time.monotonic())
        return line

    async def _rows(self, line: Line) -> AsyncIterator[tuple[Staged, Staged | None]]:
        """What is left of a line, each with the one behind it."""
        before: Staged | None = None
        after: Staged | None = None
        while page := await self._table.of_line(self._owner.job, line, after, PAGE):
            for row in page:
                if before is not None:
                    yield before, row
                before = row
            after = page[-1]
        if before is not None:
            yield before, None

    async def _in_order(self, line: Line) -> float | None:
        """One key: closed, applied again, opened; then what was missing. Seconds until its next try, where one failed."""
        closed, first = line in self._closed, self._owner.resumed
        async for row, following in self._rows(line):
            if not row.again:
                await self._open(line)
                await self._applied(row, self._applier.feed)
                continue
            if not closed and not await self._applier.close(line):
                return None  # the job is over, or another's; or another job has the key
            closed = True
            is_last = following is None or not following.again
            after = await self._through(row, counted=first, is_last=is_last)
            if after != DONE:
                return after
            first = False
        if closed:
            await self._open(line)
        return None

    async def _open(self, line: Line) -> None:
        if line not in self._opened:
            await self._applier.open(line)
            self._opened.add(line)

    async def _alone(self, line: Line) -> float | None:
        """Those of one topic and tenant that stand in no order: one that fails keeps nobody waiting."""
        first, waits = self._owner.resumed, list[float]()
        async for row, _ in self._rows(line):
            if not row.again:
                await self._applied(row, self._applier.feed)
            elif row.event_id not in self._still:
                after = await self._through(row, counted=first, is_last=False)
                waits += [after] if after else []
                first = False
        return min(waits, default=None)

    async def _through(self, row: Staged, *, counted: bool, is_last: bool) -> float | None:
        """Apply one again: DONE when it is dealt with, the seconds until its next try, or None: it stands still. `counted`: whoever
        had it before may have died of it."""
        inbound = self._applier.decoded(row)
        if inbound.event is None or inbound.handler is None:
            why = inbound.defect or f"{self._executor.consumer} has no handler for it in this release"
            await self._stand_still(row, why)
            return None
        attempts = 0 if row.error else row.attempts
        while True:
            attempts += 1
            if counted or attempts > 1:
                row = msgspec.structs.replace(row, attempts=attempts, error="")
                await self._table.note(row)
            if attempts > inbound.policy.max_attempts:
                await self._stand_still(row, "attempts spent, the last of them in a crash")
                return None
            try:
                apply = partial(self._applier.again, inbound=inbound, attempt=attempts, is_last=is_last)
                if await self._applied(row, apply) and is_last:
                    self._opened.add(row.line)
                return DONE
            except NotApplied as failed:
                outcome = decide(inbound.policy, failed.cause, attempts)
                log.warning("%s: %s was not applied again: %s", self._executor.consumer, row.event_id, failed.words)
                if not isinstance(outcome, Again):
                    await self._stand_still(row, failed.words)
                    return None
                if outcome.seconds:
                    await self._table.note(msgspec.structs.replace(row, attempts=attempts, error=""))
                    return outcome.seconds

    async def _stand_still(self, row: Staged, why: str) -> None:
        self._still.add(row.event_id)
        error = f"{row.event_id}: {redacted(why)}"[:2_000]
        await self._table.note(msgspec.structs.replace(row, error=error))

    async def _applied(self, row: Staged, apply: Callable[[Staged], Awaitable[bool]]) -> bool:
        """At its turn, and again as long as the database is in trouble: whether it was committed, its row knows. False when somebody
        else has dealt with it, or a try before."""
        await self._turn()
        failures = 0
        while True:
            try:
                if not await apply(row):
                    return False
                self._done += 1
                self._told(self._done, self._total)
                return True
            except AWAY as error:
                failures += 1
                log.info("%s: tried again: %s", self._executor.consumer, words_of(error))
                await asyncio.sleep(backoff(failures, FIRST_PAUSE, LAST_PAUSE))


async def _all(works: Sequence[Coroutine[object, object, None]]) -> None:
    """Side by side to their end; the first that fails ends all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _left(standing: Standing) -> str:
    left = f"{standing.left:,} events of {standing.staged:,} are left"
    if not standing.still:
        return f"{left}: another replay has their keys, or took this one over; resume it when that has ended"
    return (
        f"{left}: {standing.still:,} of them failed, and what comes behind these waits: {standing.error}. Mend it and resume the job; "
        "cancelled, it leaves them as they were applied before"
    )

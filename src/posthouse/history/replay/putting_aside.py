"""Putting aside: what a replay will apply, fixed before it applies anything."""

from __future__ import annotations

from collections.abc import Collection

from posthouse.errors import ReplayPaused
from posthouse.history.replay.applying import Applier
from posthouse.history.replay.choice import Choice
from posthouse.history.replay.plan import Planner, lines_of
from posthouse.history.replay.running import Owner
from posthouse.history.replay.sources import Source
from posthouse.receiving import Executor
from posthouse.store.replays import Line


async def put_aside(executor: Executor, choice: Choice, source: Source, owner: Owner) -> Collection[Line]:
    """Everything of the range; the keys that are closed since. Where keys are applied again to their end, they are closed first, and the source is read once more
    after that: so whatever was applied before the closing is among it, and nothing is applied between that and the replay."""
    only = await _closed(executor, choice, source, owner) if choice.is_open else None
    await Planner(executor, choice, source).stage(owner.job, owner.token, only)
    return only or ()


async def _closed(executor: Executor, choice: Choice, source: Source, owner: Owner) -> set[Line]:
    applier, closed = Applier(executor, owner.job, owner.token), set[Line]()
    async for line in lines_of(Planner(executor, choice, source), owner.job):
        if not await applier.close(line):
            raise ReplayPaused("the job was taken over, or another one has a key of it: resume it when that has ended")
        closed.add(line)
    return closed

"""Replays: let a consumer read again, and build a read model anew, as far as the rights go and a grant allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from posthouse.app import App, app_of
from posthouse.broker import Progress as Standing
from posthouse.processes.projection import Plan, Progress, Rebuilt
from posthouse.service import Service
from posthouse.store import Action, Scope

LOOK = 0.5
"""Seconds between two looks at how much of its grant a rebuild has spent."""

Standings = Mapping[str, Standing]


async def seek(
    service: Service,
    topics: Sequence[str],
    action: Action,
    *,
    position: int | str | None = None,
    time: float | None = None,
) -> tuple[Standings, Standings]:
    """Send the consumer of `action` to another place of its topics; where it stood before, and where it stands. Each topic is one
    event of a grant: how many it reads again, only the broker will know."""
    app, consumer = app_of(service), action.consumer
    refuse_replay(service, topics)
    before = await app.broker.progress(consumer, topics)
    async with app.actions.doing(action) as act:
        for topic in topics:
            scope = Scope(consumer=consumer, topic=topic, since=time)
            await app.grants.draw(service.name, "replay", scope, action.by)
            await app.broker.seek(consumer, topic, position=position, time=time)
        after = await app.broker.progress(consumer, topics)
        act.changed = {f"unread in {topic}": (before[topic].pending, after[topic].pending) for topic in topics}
        act.count = len(topics)
    return before, after


async def rebuild(
    service: Service,
    name: str,
    plan: Plan,
    told: Callable[[Progress], None] | None = None,
    *,
    by: str = "",
    why: str = "",
) -> Rebuilt:
    """Build a read model anew. GrantNeeded as soon as its grant has ended: the next one goes on where this stopped."""
    app = app_of(service)
    projection = app.projections.named(name)
    topics = sorted({known.topic for known in projection.event_types})
    refuse_replay(service, topics)
    if not app.grants.needed:
        return await app.projections.rebuild(name, plan, told, by=by, why=why)
    return await _metered(
        app, service.name, Scope(consumer=projection.consumer), by, _Rebuild(app, name, plan, told, why)
    )


def refuse_replay(service: Service, topics: Sequence[str]) -> None:
    """Raise ConfigurationError where the service may not be sent back."""
    keeper = app_of(service).opened.keeper
    if keeper is not None:
        keeper.refuse_replay(service.name, topics)


class _Rebuild:
    """One that counts what it has read, for whoever spends a grant on it."""

    def __init__(self, app: App, name: str, plan: Plan, told: Callable[[Progress], None] | None, why: str) -> None:
        self._app, self._name, self._plan, self._told, self._why = app, name, plan, told, why
        self.fresh = 0

    async def run(self, by: str) -> Rebuilt:
        return await self._app.projections.rebuild(self._name, self._plan, self._hear, by=by, why=self._why)

    def _hear(self, progress: Progress) -> None:
        self.fresh = progress.fresh
        if self._told is not None:
            self._told(progress)


async def _metered(app: App, service: str, scope: Scope, by: str, work: _Rebuild) -> Rebuilt:
    """Spend a grant on what was read, one look after the other; the work ends with it."""
    spent = await app.grants.draw(service, "replay", scope, by)
    task = asyncio.ensure_future(work.run(by))
    try:
        while not (await asyncio.wait([task], timeout=LOOK))[0]:
            spent += (
                await app.grants.draw(service, "replay", scope, by, max(1, work.fresh - spent))
                if work.fresh > spent
                else 0
            )
            await app.grants.refuse_over(service, "replay", scope, by)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

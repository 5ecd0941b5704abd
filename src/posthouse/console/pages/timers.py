"""Timers: facts that will be said later, soonest first."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page
from posthouse.console.listing import lines_wanted, listed, place_of, seen_tenants
from posthouse.events import timestamp
from posthouse.store.browsing import TimerLine


async def stores(ask: Ask) -> object:
    """How many timers each store has, and for how long the first has been due. The numbers are of all tenants: who sees some only
    gets the names."""
    found = await ask.each(_of)
    every = ask.who.tenants is None
    return {"stores": [{"service": name, **(facts if every else {})} for name, facts in found.items()]}


async def _of(app: App) -> Mapping[str, object]:
    gauges = await app.store.gauges()
    return {"timers": gauges.counts.timers, "overdue": gauges.timers_overdue}


async def timers(ask: Ask) -> object:
    """Those of one store that did not fire yet, with `overdue`."""
    limit, after, tenants = lines_wanted(ask), place_of(ask, tuple[float, int]), seen_tenants(ask)

    async def of(app: App) -> tuple[float, list[TimerLine]]:
        return app.clock.now(), list(await app.store.browsing.timers(tenants, after=after, limit=limit + 1))

    now, found = await ask.one(ask.path["service"], of)
    return listed(found, limit, lambda one: _facts(one, now), lambda one: (one.due_at, one.id))


def _facts(one: TimerLine, now: float) -> Mapping[str, object]:
    return {
        "name": one.name,
        "tenant": one.tenant,
        "due_at": timestamp(one.due_at),
        "overdue": max(0.0, now - one.due_at),
        "topic": one.topic,
        "key": one.key,
        "event_id": one.event_id,
    }


PAGES: Mapping[str, Page] = {"/timers": stores, "/timers/{service}": timers}

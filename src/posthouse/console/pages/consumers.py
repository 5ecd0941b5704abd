"""Consumers: how far each is in each topic, who runs it, and what waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from posthouse.app import App
from posthouse.broker import Progress
from posthouse.console.asking import Ask, Page
from posthouse.console.estate import Problem
from posthouse.console.listing import everybodys
from posthouse.errors import BrokerError
from posthouse.redaction import words_of
from posthouse.store import Gauges, Worker
from posthouse.watch.liveness import attended, is_running, of_app

BROKER_WITHIN = 2.0
"""Seconds that a broker has; after that it is away, and the page shows what the stores know."""
LOOK_AT_BROKER = "is the broker up, and its URL right? The rest of the page is what the stores know"

Line = tuple[str, str]


class Seen(NamedTuple):
    """What one App's store and broker say. `away`: why the broker did not."""

    gauges: Gauges
    members: Mapping[str, Sequence[Worker]]
    progress: Mapping[Line, Progress]
    groups: Mapping[str, Sequence[str]]
    away: str


async def consumers(ask: Ask) -> object:
    """Per consumer and topic: applied, in flight, how old the oldest is, held by state, in hand, members."""
    everybodys(ask, "Consumers apply events")
    found = await ask.each(_look)
    ask.problems.extend(Problem(name, seen.away, LOOK_AT_BROKER) for name, seen in found.items() if seen.away)
    apps = {app.opened.name: app for app in ask.estate.apps}
    producers = {
        known.topic: found[name].gauges
        for name in found
        for service in apps[name].services
        for known in (*service.declared.own_events, *service.declared.internal_events)
    }
    return {
        "items": [
            line
            for name, seen in found.items()
            for group, topics in sorted(_groups(seen).items())
            for line in _lines(apps[name], seen, group, topics, producers)
        ]
    }


async def _look(app: App) -> Seen:
    await app.projections.learn()  # another process may have swapped a generation in
    gauges = await app.store.gauges()
    running = [one for one in of_app(app, await app.store.workers.read()) if is_running(one)]
    progress, away = await _progress(app)
    return Seen(gauges, attended(app, running), progress, app.opened.topology().groups, away)


async def _progress(app: App) -> tuple[Mapping[Line, Progress], str]:
    groups = app.opened.topology().groups
    try:
        async with asyncio.timeout(BROKER_WITHIN):
            found = await asyncio.gather(*(app.broker.progress(group, topics) for group, topics in groups.items()))
    except TimeoutError:
        return {}, f"its broker did not answer within {BROKER_WITHIN:g} s"
    except (BrokerError, OSError) as error:
        return {}, words_of(error)
    return {(group, topic): one for group, of in zip(groups, found, strict=True) for topic, one in of.items()}, ""


def _groups(seen: Seen) -> Mapping[str, Sequence[str]]:
    """Those that the code has, and others for which something is held."""
    every: dict[str, list[str]] = {group: list(topics) for group, topics in seen.groups.items()}
    for group, topic, _ in seen.gauges.counts.held:
        if topic not in every.setdefault(group, []):
            every[group].append(topic)
    return every


def _lines(
    app: App, seen: Seen, group: str, topics: Sequence[str], producers: Mapping[str, Gauges]
) -> list[Mapping[str, object]]:
    counts = seen.gauges.counts
    members = [worker.name for worker in seen.members.get(group, ())]
    of = next((service.name for service in app.services if group in service.declared.consumers), None)
    return [
        {
            "service": of or app.opened.name,
            "consumer": group,
            "topic": topic,
            "declared": topic in seen.groups.get(group, ()),
            "applied": counts.applied.get((group, topic), 0),
            "skipped": counts.skipped.get((group, topic), 0),
            "held": {state: n for (name, t, state), n in counts.held.items() if (name, t) == (group, topic) and n},
            "strange": counts.strange.get((group, topic), 0),
            **_way(seen.progress.get((group, topic)), producers.get(topic), topic),
            "members": members,
        }
        for topic in topics
    ]


def _way(progress: Progress | None, producer: Gauges | None, topic: str) -> dict[str, object]:
    """What is on its way: at the broker, and unsent where the producer was looked at."""
    if progress is None:
        return {"in_flight": None, "in_hand": None, "lag": None, "uncounted": ""}
    counts = None if producer is None else producer.counts
    unsent = 0 if counts is None else counts.unsent.get(topic, 0) - counts.refused.get(topic, 0)
    lag = progress.oldest
    if lag is not None and unsent > 0 and producer is not None:
        lag = max(lag, producer.unsent_oldest.get(topic, 0.0))
    return {
        "in_flight": progress.pending + unsent,
        "in_hand": progress.unsure,
        "lag": lag,
        "uncounted": progress.uncounted,
    }


PAGES: Mapping[str, Page] = {"/consumers": consumers}

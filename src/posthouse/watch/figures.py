"""Figures: what was read of one App's store and broker, as samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from posthouse.app import App
from posthouse.broker import Progress
from posthouse.processes.projection import Projection
from posthouse.processes.projection.freshness import freshness
from posthouse.runtime import PARTS
from posthouse.store import BLOCKING, Counts, Gauges, HeldState, Worker
from posthouse.store.sagas import NOT_OVER, Rest
from posthouse.watch.liveness import attended, is_running, of_app
from posthouse.watch.owners import Labels, Owners
from posthouse.watch.samples import Sample

STATES: Sequence[HeldState] = [state for state in get_args(HeldState) if state != "skipped"]

Line = tuple[str, str]
"""A consumer group and a topic."""


class Figures:
    """Samples that are being gathered: what several things under one name have is added up, and of ages the greatest counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, metric: str, value: float, labels: Labels, **more: str) -> None:
        place = metric, tuple({**labels, **more}.items())
        self._found[place] = self._found.get(place, 0) + value

    def most(self, metric: str, value: float, labels: Labels, **more: str) -> None:
        place = metric, tuple({**labels, **more}.items())
        self._found[place] = max(self._found.get(place, value), value)

    def samples(self) -> list[Sample]:
        return [Sample(metric, dict(labels), float(value)) for (metric, labels), value in self._found.items()]


class Way:
    """What is on its way to one consumer group in one topic: at the broker, and in the producer's outbox, where that was read.
    `oldest` is how long the first at the broker has waited; None: nobody knows. `away`: the producer's store did not answer, so that
    nobody knows what waits there."""

    def __init__(
        self, progress: Progress, producer: Gauges | None, topic: str, oldest: float | None, *, away: bool = False
    ) -> None:
        counts = None if producer is None else producer.counts
        waiting = 0 if counts is None else counts.unsent.get(topic, 0) - counts.refused.get(topic, 0)
        unseen = counts is not None and not _seen(counts, topic)
        self.events = None if progress.uncounted or away or unseen else progress.pending + waiting
        self.waits = progress.pending + waiting > 0
        if oldest is not None and waiting > 0 and producer is not None:
            oldest = max(oldest, producer.unsent_oldest.get(topic, 0.0))
        self.seconds = oldest


def _seen(counts: Counts, topic: str) -> bool:
    """Whether what waits of a topic is known: of a backlog that is too long to be counted only a part was looked at, and a topic
    that was not in it may have any number."""
    return not counts.estimated or counts.unsent.get(topic, 0) > 0


def outbox_figures(figures: Figures, owners: Owners, gauges: Gauges) -> None:
    counts, sent = gauges.counts, gauges.counts.sums.sent
    for topic in {*owners.topics, *counts.committed}:
        unsent = counts.unsent.get(topic, 0) - counts.refused.get(topic, 0)
        if not counts.estimated:  # what is too high now falls later, and a counter must not
            figures.add("outbox_committed_total", counts.committed.get(topic, 0), owners.topic(topic))
        figures.add("outbox_sent_total", sent.get(topic, 0), owners.topic(topic))
        if _seen(counts, topic):
            figures.add("outbox_unsent", unsent, owners.topic(topic))
    figures.add("outbox_oldest_unsent_seconds", gauges.oldest_unsent, owners.app)
    figures.add("outbox_stuck", counts.stuck, owners.app)
    figures.add("outbox_refused", sum(counts.refused.values()), owners.app)
    figures.add("relay_shards", gauges.shards_leased, owners.app, state="leased")
    figures.add("relay_shards", gauges.shards_free, owners.app, state="free")
    figures.add("relay_leases_total", gauges.leases, owners.app)


def consumer_figures(figures: Figures, owners: Owners, gauges: Gauges, lines: Sequence[Line]) -> None:
    """What the store has of each consumer; also of those that the code has no more."""
    counts = gauges.counts
    kept = (
        {(group, topic) for group, topic, _ in counts.held}
        | set(counts.applied)
        | set(counts.skipped)
        | set(counts.lost)
    )
    for group, topic in {*lines, *kept, *counts.strange}:
        labels = owners.line(group, topic)
        figures.add("consumer_applied_total", counts.applied.get((group, topic), 0), labels)
        figures.add("consumer_given_up", counts.skipped.get((group, topic), 0), labels, reason="skipped")
        figures.add("consumer_given_up", counts.lost.get((group, topic), 0), labels, reason="lost")
        for state in STATES:
            figures.add("held", counts.held.get((group, topic, state), 0), labels, state=state)
        unreadable = counts.strange.get((group, topic), 0) - counts.strange_skipped.get((group, topic), 0)
        figures.add("held", unreadable, labels, state="quarantined")
    for group in {group for group, _ in lines} | {group for group, _ in gauges.held_oldest}:
        for state in STATES:
            age = gauges.held_oldest.get((group, state), 0.0)
            figures.most("held_oldest_seconds", age, owners.consumer(group), state=state)
        figures.most("held_runnable_seconds", gauges.held_runnable.get(group, 0.0), owners.consumer(group))
        figures.add("held_due", gauges.held_due.get(group, 0), owners.consumer(group))


def process_figures(
    figures: Figures, owners: Owners, gauges: Gauges, unadopted: Mapping[tuple[str, str], float]
) -> None:
    """Timers, sagas and schedules. `unadopted`: schedules that no process has ever begun to keep, and how late each is."""
    figures.add("timers", gauges.counts.timers, owners.app)
    figures.add("timers_overdue_seconds", gauges.timers_overdue, owners.app)
    for saga in {*owners.sagas, *(saga for saga, _ in gauges.sagas), *(saga for saga, _ in gauges.sagas_ended)}:
        for status in NOT_OVER:
            figures.add("saga_instances", gauges.sagas.get((saga, status), 0), owners.saga(saga), state=status)
            age = gauges.sagas_oldest.get((saga, status), 0.0)
            figures.most("saga_oldest_seconds", age, owners.saga(saga), state=status)
        for outcome in get_args(Rest):
            ended = gauges.sagas_ended.get((saga, outcome), 0)
            figures.add("saga_ended_total", ended, owners.saga(saga), outcome=outcome)
    for service, schedule in owners.schedules:
        late = gauges.schedules_overdue.get((service, schedule), unadopted.get((service, schedule), 0.0))
        figures.most("schedule_overdue_seconds", late, {"service": service, "schedule": schedule})


def server_figures(figures: Figures, owners: Owners, gauges: Gauges) -> None:
    """Of a store on a server."""
    if gauges.runs:
        figures.add("store_runs_total", gauges.runs, owners.app)
    if (found := gauges.connections) is not None:
        figures.add("store_connections", found.used, owners.app, state="used")
        figures.add("store_connections", max(0, found.limit - found.used), owners.app, state="free")
        figures.add("store_connections_limit", found.limit, owners.app)


def archive_figures(figures: Figures, owners: Owners, archived: Mapping[str, Progress]) -> None:
    """How far the archive is behind the log."""
    figures.add("archive_waiting", sum(one.pending for one in archived.values()), owners.app)
    ages = [one.oldest for one in archived.values() if one.oldest is not None]
    if len(ages) == len(archived):
        figures.add("archive_oldest_seconds", max(ages, default=0.0), owners.app)


def way_figures(figures: Figures, owners: Owners, ways: Mapping[Line, Way]) -> None:
    for (group, topic), way in ways.items():
        if way.events is not None:
            figures.add("consumer_in_flight", way.events, owners.line(group, topic))
        if way.seconds is not None:
            figures.most("consumer_lag_seconds", way.seconds, owners.line(group, topic))


def projection_figures(
    figures: Figures, service: str, projection: Projection, gauges: Gauges, ways: Mapping[Line, Way]
) -> None:
    """Of the generation that is read; nothing where there is none, or where the broker was not asked."""
    labels = {"service": service, "projection": projection.name}
    figures.add("projection_budget_seconds", projection.terms.lag_budget, labels)
    live = [one for one in gauges.generations if one.projection == projection.consumer and one.state == "live"]
    for row in live:
        group = projection.group(row.number)
        mine = [way for (of, _), way in ways.items() if of == group]
        events = [way.events for way in mine if way.events is not None]
        if not mine or len(events) < len(mine):
            continue
        held = sum(n for (of, _, state), n in gauges.counts.held.items() if of == group and state in BLOCKING)
        figures.add("projection_lag_events", sum(events) + held, labels)
        ages = [way.seconds for way in mine if way.seconds is not None]
        if len(ages) < len(mine):  # nobody knows more than when it applied something last
            since = row.live_at or row.made_at
            known = freshness(
                now=gauges.at,
                event_at=row.event_at,
                applied_at=row.applied_at,
                since=since,
                budget=projection.terms.lag_budget,
                waiting=sum(events),
                held=held,
            )
            ages = [known.lag]
        ages += [age for (of, state), age in gauges.held_oldest.items() if of == group and state in BLOCKING]
        figures.most("projection_freshness_seconds", max(ages), labels)


def worker_figures(
    figures: Figures,
    app: App,
    owners: Owners,
    gauges: Gauges,
    workers: Sequence[Worker],
    ways: Mapping[Line, Way],
    *,
    unadopted: bool,
) -> None:
    """Who runs, and what waits for a part that nobody runs. `unadopted`: there are schedules that no process keeps."""
    running = [worker for worker in of_app(app, workers) if is_running(worker)]
    by = attended(app, running)
    for group, those in by.items():
        awake = [worker for worker in those if owners.consumer(group)["consumer"] not in worker.aside]
        figures.add("consumer_workers", len(awake), owners.consumer(group))
    counts = gauges.counts
    shared = {
        "relay": sum(counts.unsent.values()) - sum(counts.refused.values()) > 0,
        "timers": counts.timers > 0 or bool(gauges.schedules_overdue) or unadopted,
        "archive": app.opened.ports.archive_url is not None,
    }
    for service in app.services:
        idle = [group for group, those in by.items() if not those and owners.consumer(group)["service"] == service.name]
        waits = {**shared, "consumers": any(_works(group, gauges, ways) for group in idle)}
        for part in PARTS if shared["archive"] else PARTS[:-1]:
            there = [worker for worker in running if part in worker.parts]
            mine = [worker for worker in there if service.name in worker.services]
            figures.add("workers", len(mine), {"service": service.name}, part=part)
            alone = waits[part] and (part == "consumers" or not there)
            figures.add("unattended", alone, {"service": service.name}, part=part)


def _works(group: str, gauges: Gauges, ways: Mapping[Line, Way]) -> bool:
    """Whether something waits for a consumer group."""
    on_its_way = any(way.waits for (of, _), way in ways.items() if of == group)
    return on_its_way or any(
        n for (of, _, state), n in gauges.counts.held.items() if of == group and state == "retrying"
    )

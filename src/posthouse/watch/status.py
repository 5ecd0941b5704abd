"""Status: does it add up? Committed = applied + in flight + held, per consumer and topic.

Only what a producer committed is summed: junk that was put into a topic makes up for no event that is lost. There are three answers, and each can be reached on every broker: it adds up, it does not, or nobody can tell, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from posthouse.app import App, apps_of
from posthouse.broker import Progress
from posthouse.clock import day_of
from posthouse.contracts.deprecation import deprecations
from posthouse.errors import BrokerUnavailable
from posthouse.processes.saga.calls import CALLS_OUT, overdue
from posthouse.redaction import redacted, words_of
from posthouse.seam.timing import ServiceTiming, read_timing
from posthouse.service import Service
from posthouse.store import Counts
from posthouse.store.sagas import SagaFilter, SagaStatus
from posthouse.watch import replays

Verdict = Literal["adds up", "does not add up", "cannot tell"]


FOR_GOOD = ("dead", "quarantined")
"""States that nothing ends but an operator's word."""
FOR_PEOPLE: tuple[SagaStatus, ...] = ("awaited", "compensation_failed", "partial")
DROPPED = "the broker has dropped frames before they were read"
CAME = "{:,} that were accepted as lost came after all, or were given up: say `posthouse outbox accept-loss` again"
GONE = "frames are gone from the broker that it may not have read"
FORGOTTEN = (
    "{}: {:,} events were sent, and the broker has no trace of them: its log was deleted, or is another one. A worker makes what "
    "it needs when it runs; what consumers lack then counts as missing, and can be sent again: docs/missing.md"
)
TWICE = "a consumer has them in hand or did not acknowledge them, or the broker has repeats"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The conservation line of one consumer in one topic.

    `committed` is counted by the producer's own store. When that was not named (`foreign`) it is the broker's count of
    frames, which has every repeated one in it. `in_flight` is what the outbox has not sent plus what the broker has not
    had acknowledged; `refused` of it were refused by the broker for good, and `uncounted` says which of it the broker cannot
    count. `held` counts events by state, `strange` held frames in which no event could be read: nobody knows whether they ever
    were any. `late` marks a consumer that may have joined when older events were gone already, `gone` one that was there from
    the beginning while frames are gone that it may not have read, `dropped` one that had certainly not read them. `removed`
    is one that the service has no more: what is held for it counts all the same, and what was committed for it cannot be told.
    `overlap`: so many of those in flight, at most, may be counted a second time: they are in a consumer's hands and may be
    applied, or the broker has more frames than were sent, so that some are repeats, junk, or still in the outbox as well.
    `lost`: so many never came, and an operator has accepted it. `overdue`: so many of the held ones wait at a gap whose deadline
    has passed.
    """

    consumer: str
    topic: str
    committed: int
    applied: int
    in_flight: int
    held: Mapping[str, int]
    skipped: int
    foreign: bool
    late: bool
    uncounted: str = ""
    removed: bool = False
    refused: int = 0
    strange: int = 0
    gone: bool = False
    dropped: bool = False
    overlap: int = 0
    lost: int = 0
    overdue: int = 0

    @property
    def moving(self) -> bool:
        """Whether something of it is on its way; what was refused for good is not."""
        return self.in_flight > self.refused

    @property
    def difference(self) -> int:
        """What is missing (above 0) or counted twice (below 0); of foreign lines nothing is known. While events move, a few
        are on both sides of a step; when nothing moves and nobody came late it is 0."""
        found = self.applied + self.in_flight + sum(self.held.values()) + self.skipped + self.lost
        return 0 if self.foreign or self.removed else self.committed - found

    @property
    def verdict(self) -> Verdict:
        """Whatever a broker cannot count could only explain what is missing: a line without a difference adds up all the same,
        unless the broker dropped what was not read, or something may be counted twice: that would hide as many that are lost.
        What is missing all the same is missing, and more than can be counted twice is too much."""
        if self.foreign or self.removed:
            return "cannot tell"
        if self.difference == 0:
            return "cannot tell" if self.dropped or self.overlap else "adds up"
        if self.difference < 0:
            return "cannot tell" if -self.difference <= self.overlap else "does not add up"
        return "cannot tell" if self._excuses else "does not add up"

    @property
    def _excuses(self) -> list[str]:
        """What may explain that events are not found, though none was lost."""
        excuses = [self.uncounted] if self.uncounted else []
        if self.late:
            excuses.append("the group may have begun after them")
        if self.strange >= self.difference:
            excuses.append(f"they may be among the {self.strange:,} held in which no event could be read")
        return excuses

    @property
    def reason(self) -> str:
        """Why nobody can tell, or where the events are that are missing, if that is known."""
        if self.verdict == "adds up":
            return ""
        if self.removed:
            return "nobody reads it any more, and what is held for it stays: retry or skip it, see `posthouse held list TARGET`"
        if self.foreign:
            return "the service that says these events was not named"
        if self.difference < 0:
            if self.verdict == "cannot tell":
                return f"{-self.difference:,} counted twice: {TWICE}"
            return CAME.format(-self.difference) if -self.difference <= self.lost else ""
        if self.difference == 0 and self.dropped:
            return f"{DROPPED}, and something else was counted instead"
        if self.difference == 0:
            return f"{self.overlap:,} may be counted twice, and hide as many that are missing: {TWICE}"
        reasons = self._excuses
        if self.dropped or self.gone:
            reasons.append(DROPPED if self.dropped else GONE)
        return f"{self.difference:,} of them not found: {', or '.join(reasons)}" if reasons else ""


class ScheduleTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that needs somebody: runs of it failed for good, or are tried again, or its moment has come and nobody has begun
    a run. `overdue` is that moment."""

    service: str
    name: str
    failed: int
    retrying: int
    overdue: float | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one or several services. `unsent` and `timers` are per service, `stuck` counts refused outbox rows; those
    for good are not among the unsent ones, and counted as `refused`, copies in dead letter topics aside."""

    lines: Sequence[Line]
    unsent: Mapping[str, int]
    stuck: Mapping[str, int]
    timers: Mapping[str, int]
    notes: Sequence[str]
    refused: Mapping[str, int] = {}
    sagas: Mapping[str, Mapping[SagaStatus, int]] = {}
    """How many sagas a person should know of: those whose compensation failed, partial ones, and those that were not started
    though events wait for them."""
    schedules: Sequence[ScheduleTrouble] = ()
    """Schedules that are failing or overdue."""
    committed: Mapping[str, int] = {}
    """Rows ever added to the outbox, per service."""
    oldest: Mapping[str, Mapping[str, float]] = {}
    """Seconds since the oldest frame was stored that a consumer has not dealt with, per consumer and topic; left out where its broker
    cannot tell."""
    away: str = ""
    """Why a broker could not be asked: then nobody knows what is at it, and the rest is what the stores know."""

    @property
    def dead(self) -> int:
        """Events that go nowhere until a person decides: held as dead or set aside, or refused by the broker for good."""
        held = [line.held.get(state, 0) for line in self.lines for state in FOR_GOOD]
        return sum(held) + sum(self.refused.values())

    @property
    def not_undone(self) -> int:
        """Sagas whose compensation failed: what should be undone stands until a person decides."""
        return sum(of.get("compensation_failed", 0) for of in self.sagas.values())

    @property
    def overdue(self) -> int:
        """Events that wait for a number which did not come in the time that their policy gives it."""
        return sum(line.overdue for line in self.lines)

    @property
    def quiet(self) -> bool:
        """Nothing is on its way as far as anybody can tell, and nothing is known to be missing."""
        return not any(self.unsent.values()) and all(
            line.in_flight == 0 and line.verdict != "does not add up" for line in self.lines
        )

    def settled(self, before: Status) -> Sequence[Line]:
        """Lines whose verdict stands, whatever others do: nothing of them is on its way, or they stand as they stood at a look
        a moment `before`: what is in flight does not move, so it explains nothing."""
        return [line for line in self.lines if not line.moving or line in before.lines]

    @property
    def verdict(self) -> Verdict:
        """That of all lines: the worst of theirs."""
        return worst(self.lines)


def worst(lines: Sequence[Line]) -> Verdict:
    """The verdict on all of them."""
    verdicts = {line.verdict for line in lines}
    if "does not add up" in verdicts:
        return "does not add up"
    return "cannot tell" if "cannot tell" in verdicts else "adds up"


async def status(services: Sequence[Service], *, patience: float | None = None) -> Status:
    """Read the figures. Name producers and consumers together to have the producers' own counts in the lines. `patience`: a broker
    that does not answer for so many seconds, or is away, is told of in the figures (`Status.away`) and not raised.

    Against the stream: first what was applied, then what is at the broker, last what was committed and not sent. So an event
    that takes a step meanwhile is missed, which the next look corrects, and never counted twice, which could hide a loss."""
    apps = apps_of(services)
    for app in apps:
        await app.projections.learn()  # another process may have swapped a generation in
    heard = [await app.store.counts() for app in apps]
    progress = [await _progress(app, patience) for app in apps]
    counts = {app.opened.name: await app.store.counts() for app in apps}
    own = {service.name: counts[app.opened.name] for app in apps for service in app.services}
    said = [
        event_type
        for app in apps
        for service in app.services
        for event_type in (*service.declared.catalogue, *service.declared.internal_events)
    ]
    producers = {event_type.topic: own.get(event_type.subject.service) for event_type in said}
    lines = [
        line for applied, reached in zip(heard, progress, strict=True) for line in _lines(applied, reached, producers)
    ]
    gone = [FORGOTTEN.format(topic, n) for reached in progress for topic, n in _forgotten(reached, producers).items()]
    return Status(
        lines=lines,
        unsent={name: sum(c.unsent.values()) - sum(c.refused.values()) for name, c in counts.items()},
        committed={name: sum(c.committed.values()) for name, c in counts.items()},
        oldest=_ages(progress),
        stuck={name: c.stuck for name, c in counts.items()},
        refused={name: sum(n for t, n in c.refused.items() if t in producers) for name, c in counts.items()},
        timers={name: c.timers for name, c in counts.items()},
        sagas=await _for_people(apps),
        schedules=[trouble for app in apps for trouble in await _in_trouble(app)],
        away="; ".join(dict.fromkeys(reached.away for reached in progress if reached.away)),
        notes=[
            *sorted({note for app in apps for note in app.broker.sheet.notes} | {*_ends(apps)}),
            *dict.fromkeys(gone),
            *(f"{name}: {note}" for name, c in counts.items() for note in c.notes),
            *[note for app in apps for note in await _overdue_calls(app)],
            *[f"{replays.words_of(job)}; {replays.fix_of(job)}" for app in apps for job in await replays.still(app)],
        ],
    )


async def timing_of(services: Sequence[Service]) -> Sequence[ServiceTiming]:
    """What the running processes of these services have timed, as they wrote it to their stores."""
    found = [one for app in apps_of(services) for one in await read_timing(app.store.workers)]
    names = {service.name for service in services}
    return list({one.service: one for one in found if names.intersection(one.service.split(", "))}.values())


async def _overdue_calls(app: App) -> list[str]:
    """A sentence for each saga whose calls to the outside nobody seems to make; of more than a page of them, the first count."""
    types = [of for service in app.services for of in service.declared.saga_types.values() if of.calls]
    notes = []
    for of in types:
        rows = await app.store.sagas.find(SagaFilter(saga=of.name, where={CALLS_OUT: ""}))
        late = {row.id: seconds for row in rows if (seconds := overdue(row, app.clock.now()))}
        if late:
            worst = max(late, key=late.__getitem__)
            notes.append(
                f"calls of {len(late)} saga(s) {of.name} are overdue, {worst} for {late[worst]:,.0f} s: does a worker of "
                f"{of.service} run? See posthouse saga show … {of.name} {worst}"
            )
    return notes


async def _for_people(apps: Sequence[App]) -> Mapping[str, Mapping[SagaStatus, int]]:
    """Sagas that wait for a person, per saga and status."""
    found: dict[str, dict[SagaStatus, int]] = {}
    for app in apps:
        for (saga, status), number in sorted((await app.store.sagas.counts()).items()):
            if status in FOR_PEOPLE:
                of = found.setdefault(saga, {})
                of[status] = of.get(status, 0) + number
    return found


async def _in_trouble(app: App) -> list[ScheduleTrouble]:
    if not any(True for service in app.services for _ in service.declared.schedules):
        return []
    found = [
        ScheduleTrouble(
            service=view.service,
            name=view.name,
            failed=view.failed,
            retrying=view.held.get("retrying", 0),
            overdue=view.row.next_at if view.overdue and view.row is not None else None,
        )
        for view in await app.schedules.find()
    ]
    return [one for one in found if one.failed or one.retrying or one.overdue is not None]


def _ends(apps: Sequence[App]) -> list[str]:
    """Their events that have a date, in words."""
    known = {known.name: known for app in apps for service in app.services for known in service.declared.catalogue}
    return deprecations(list(known.values()), day_of(apps[0].clock.now()), past=False) if apps else []


async def drained(*services: Service, timeout: float = 30.0) -> Status:
    """Wait until nothing is on its way between these services, at most `timeout` seconds; held events stay held."""
    async with asyncio.timeout(timeout):
        while not (figures := await status(services)).quiet:  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.01)
    return figures


class _Reached(NamedTuple):
    """How far the consumers of a service are, and whether its broker counts every frame that it ever stored; or why it could not
    be asked."""

    progress: Mapping[tuple[str, str], Progress]
    history: bool
    away: str = ""


async def _progress(app: App, patience: float | None = None) -> _Reached:
    places = app.opened.topology().groups
    try:
        found = {consumer: await _asked(app, consumer, topics, patience) for consumer, topics in places.items()}
    except BrokerUnavailable as error:
        if patience is None:
            raise
        nothing = Progress(stored=0, pending=0, truncated=False, uncounted="the broker could not be asked")
        unknown = {(consumer, topic): nothing for consumer, topics in places.items() for topic in topics}
        return _Reached(unknown, history=False, away=words_of(error))
    return _Reached(
        {(consumer, topic): reached for consumer, of in found.items() for topic, reached in of.items()},
        app.broker.sheet.history,
    )


async def _asked(app: App, group: str, topics: Sequence[str], patience: float | None) -> Mapping[str, Progress]:
    try:
        async with asyncio.timeout(patience):
            return await app.broker.progress(group, topics)
    except TimeoutError as error:
        place = redacted(app.opened.ports.broker_url)
        raise BrokerUnavailable(f"the broker {place} did not answer within {patience:g} s") from error


def _ages(progress: Sequence[_Reached]) -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for reached in progress:
        for (consumer, topic), one in reached.progress.items():
            if one.oldest is not None:
                found.setdefault(consumer, {})[topic] = one.oldest
    return found


async def forgotten(app: App) -> Mapping[str, int]:
    """Topics of this App of which its broker has no trace although events were sent there, with how many."""
    own = {topic for service in app.services for topic in service.declared.topics}
    if not (empty := _empty(await _progress(app)) & own):
        return {}
    sent = (await app.store.sums()).sent  # not the counts: what waits in the outbox may be long
    return {topic: sent[topic] for topic in sorted(empty) if sent.get(topic, 0) > 0}


def _forgotten(reached: _Reached, producers: Mapping[str, Counts | None]) -> Mapping[str, int]:
    sent = {
        topic: producer.committed.get(topic, 0) - producer.unsent.get(topic, 0)
        for topic in sorted(_empty(reached))
        if (producer := producers.get(topic)) is not None
    }
    return {topic: number for topic, number in sent.items() if number > 0}


def _empty(reached: _Reached) -> set[str]:
    """Topics of which a broker that counts whatever it ever stored has stored nothing."""
    return {topic for (_, topic), progress in reached.progress.items() if reached.history and progress.stored == 0}


def _lines(own: Counts, reached: _Reached, producers: Mapping[str, Counts | None]) -> list[Line]:
    found: list[Line] = []
    for (consumer, topic), progress in reached.progress.items():
        producer = producers[topic]
        unsent, refused = (
            (0, 0) if producer is None else (producer.unsent.get(topic, 0), producer.refused.get(topic, 0))
        )
        committed = progress.stored if producer is None else producer.committed.get(topic, 0)
        found.append(
            Line(
                consumer=consumer,
                topic=topic,
                committed=committed,
                applied=own.applied.get((consumer, topic), 0),
                in_flight=progress.pending + unsent,
                held={state: n for (name, t, state), n in own.held.items() if (name, t) == (consumer, topic)},
                skipped=own.skipped.get((consumer, topic), 0),
                foreign=producer is None,
                late=progress.truncated and not progress.whole,
                uncounted=progress.uncounted,
                refused=refused,
                strange=own.strange.get((consumer, topic), 0),
                lost=own.lost.get((consumer, topic), 0),
                overdue=own.overdue.get((consumer, topic), 0),
                gone=progress.truncated and progress.whole,
                dropped=progress.dropped,
                overlap=overlap(
                    progress, sent=committed - unsent if reached.history else None, unsent=unsent - refused
                ),
            )
        )
    return found + _left_behind(own, {(line.consumer, line.topic) for line in found})


def overlap(progress: Progress, *, sent: int | None, unsent: int) -> int:
    """How many of those in flight may be counted a second time, at most. `sent`: so many did the relay note as accepted; what
    the broker stored beyond that are repeats, junk, or frames that were sent and not noted. None where the broker does not
    count what it ever stored. `unsent`: those that may still be sent."""
    if (
        sent is None or progress.unsure is None or progress.stored < sent
    ):  # or the topic is another one than it was sent to
        return progress.pending + unsent
    return min(progress.pending + unsent, progress.unsure + progress.stored - sent)


def _left_behind(own: Counts, known: Collection[tuple[str, str]]) -> list[Line]:
    """What is held for consumers that the service has no more, or for topics that they do not read any more: it counts
    wherever it lies."""
    places = sorted({*((consumer, topic) for consumer, topic, _ in own.held), *own.strange} - set(known))
    return [
        Line(
            consumer=consumer,
            topic=topic,
            committed=0,
            applied=own.applied.get((consumer, topic), 0),
            in_flight=0,
            held={state: n for (name, t, state), n in own.held.items() if (name, t) == (consumer, topic)},
            skipped=own.skipped.get((consumer, topic), 0),
            foreign=False,
            late=False,
            removed=True,
            overdue=own.overdue.get((consumer, topic), 0),
            strange=own.strange.get((consumer, topic), 0),
        )
        for consumer, topic in places
    ]

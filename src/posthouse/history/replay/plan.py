"""Plan: what a replay would do, counted before anybody says yes; and putting it aside once somebody did."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import msgspec

from posthouse.errors import ReplayPaused
from posthouse.history.replay.choice import Choice, said_at
from posthouse.history.replay.selection import TO_APPLY, Selection, Verdict
from posthouse.history.replay.sources import Source
from posthouse.receiving import Executor
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.readers import topics_of
from posthouse.store import Transaction
from posthouse.store.replays import Line, Staged

PAGE = 500


class Judged(NamedTuple):
    """An event of the range, what becomes of it, and when its frame arrived, which the event itself does not tell."""

    inbound: InboundEvent
    verdict: Verdict
    stored_at: float


class Part(msgspec.Struct, kw_only=True):
    """The events of one type and tenant that are to be applied: `again`, and those that were `missing`; of so many `keys`."""

    type: str
    tenant: str
    again: int = 0
    missing: int = 0
    keys: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay will do. `left_out`: how many of the range it will not touch, by the reason. `begins`: when the oldest event said
    that the source has of each topic: what was said before it cannot be replayed from there; None where it has none. `unread`: so
    many could not be read at all."""

    parts: Sequence[Part] = ()
    left_out: Mapping[str, int] = {}
    begins: Mapping[str, float | None] = {}
    unread: int = 0

    @property
    def events(self) -> int:
        """How many will be applied."""
        return sum(part.again + part.missing for part in self.parts)


class Planner:
    """Reads the source for one consumer, and judges. Used once."""

    def __init__(self, executor: Executor, choice: Choice, source: Source) -> None:
        self._executor = executor
        self._choice = choice
        self._source = source
        self._selection = Selection(executor, choice)
        self.left_out: Counter[str] = Counter()
        self.begins: dict[str, float] = {}
        self.unread = 0

    @property
    def topics(self) -> Sequence[str]:
        """Where the consumer's events are, of the type that is asked for."""
        kind = self._choice.type
        chosen = {name: one for name, one in self._executor.handlers.items() if kind in (None, name)}
        return sorted(
            {known.topic for one in chosen.values() for known in one.event_types if kind in (None, known.name)}
            or topics_of(chosen)
        )

    async def judged(self) -> AsyncIterator[Judged]:
        """Those that are to be applied, each once; the others are counted."""
        async with aclosing(self._source.events(self.topics, self._choice.since)) as deliveries:
            async for delivery in deliveries:
                inbound = self._executor.decoder.from_delivery(delivery)
                if inbound.event is None:
                    self.unread += 1
                    continue
                topic, said = inbound.entry.topic, said_at(inbound)
                self.begins[topic] = min(said, self.begins.get(topic, said))
                verdict = await self._selection.judge(inbound, delivery.frame.id)
                if verdict in TO_APPLY:
                    yield Judged(inbound, verdict, delivery.stored_at)
                elif verdict is not None:
                    self.left_out[verdict] += 1

    async def plan(self) -> Plan:
        """Count, and change nothing."""
        parts: dict[tuple[str, str], Part] = {}
        keys: set[tuple[str, str, str | None]] = set()
        async for inbound, verdict, _ in self.judged():
            event, entry = inbound.event, inbound.entry
            kind = "" if event is None else event.type
            part = parts.setdefault((kind, entry.tenant), Part(type=kind, tenant=entry.tenant))
            if verdict == "again":
                part.again += 1
            else:
                part.missing += 1
            if entry.key is not None and (place := (kind, entry.tenant, entry.key)) not in keys:
                keys.add(place)
                part.keys += 1
        return Plan(
            parts=sorted(parts.values(), key=lambda part: (part.type, part.tenant)),
            left_out=dict(sorted(self.left_out.items())),
            begins={topic: self.begins.get(topic) for topic in self.topics},
            unread=self.unread,
        )

    async def stage(self, job: str, token: int, only: Collection[Line] | None = None) -> None:
        """Put all of them aside for a job. Whoever dies meanwhile has it begun anew by the next, and puts nothing beside that.
        `only`: of the keys, these; the others have begun since."""
        table = self._executor.store.replays
        async with self._owned(job, token) as tx:
            await table.forget(tx, job)
        page: list[Staged] = []
        async for judged in self.judged():
            one = _staged(job, judged)
            if only is not None and one.again and one.line.ordered and one.line not in only:
                self.left_out["begun since"] += 1
                continue
            page.append(one)
            if len(page) == PAGE:
                async with self._owned(job, token) as tx:
                    await table.stage(tx, page)
                page = []
        async with self._owned(job, token) as tx:
            await table.stage(tx, page)
            await table.staged(tx, job, sum(self.left_out.values()))

    @asynccontextmanager
    async def _owned(self, job: str, token: int) -> AsyncIterator[Transaction]:
        """A transaction in which the job stays its owner's."""
        store = self._executor.store
        async with store.begin() as tx:
            if not await store.replays.owns(tx, job, token):
                raise ReplayPaused("the job was taken over by another process, or has ended")
            yield tx


async def lines_of(planner: Planner, job: str) -> AsyncIterator[Line]:
    """The keys of which something is applied again, each once."""
    seen: set[Line] = set()
    async for judged in planner.judged():
        line = _staged(job, judged).line
        if judged.verdict == "again" and line.ordered and line not in seen:
            seen.add(line)
            yield line


def _staged(job: str, judged: Judged) -> Staged:
    inbound = judged.inbound
    entry = inbound.entry
    ordered = entry.sequence is not None
    return Staged(
        job=job,
        topic=entry.topic,
        tenant=entry.tenant,
        event_id=entry.event_id,
        key=entry.key or "" if ordered else "",
        sequence=entry.sequence or 0,
        lineage=entry.lineage,
        stored_at=judged.stored_at,
        headers=inbound.headers,
        body=inbound.body,
        again=judged.verdict == "again",
    )

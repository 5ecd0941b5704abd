"""Resend: what a broker lost, sent again from what the stores of its producers still have.

The frames are those that were sent, byte for byte, with their ids and numbers: a consumer drops what it knows, and waits at a gap
for what it lacks. So sending too much, sending twice, or being killed in between does no harm, beside relays that go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from posthouse.app import App
from posthouse.broker import Frame
from posthouse.clock import new_id
from posthouse.errors import DecodeError
from posthouse.events import decode_any
from posthouse.operators import Act, OperatorsLog
from posthouse.receiving.handler import Handler
from posthouse.receiving.readers import is_ordered, topics_of
from posthouse.seam.frames import frames_of
from posthouse.store import Counts, HeldFilter, InboxEntry, KeyPosition, OutboxRow, Scope, SentFilter, Store
from posthouse.store.actions import Action
from posthouse.store.inbox import drawn_at
from posthouse.trust.rights import Party

PAGE = 500
"""So many rows are read, and frames published, at once."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which events; None means any. `since` and `until` are when an event was said, in seconds since 1970. `missing`: only those
    that some consumer has neither applied, nor held, nor given up. `force`: also those that consumers may have forgotten."""

    topic: str | None = None
    tenant: str | None = None
    key: str | None = None
    since: float | None = None
    until: float | None = None
    missing: bool = False
    force: bool = False

    @property
    def in_the_store(self) -> SentFilter:
        """As much of it as a store can tell."""
        return SentFilter(topic=self.topic, tenant=self.tenant, key=self.key)

    @property
    def scope(self) -> Scope:
        """What a grant must cover."""
        return Scope(topic=self.topic, tenant=self.tenant, key=self.key, since=self.since, until=self.until)

    @property
    def narrow(self) -> bool:
        """Whether it leaves out some events of a topic."""
        return any((self.tenant, self.key, self.since, self.until, self.missing))


class Part(msgspec.Struct, kw_only=True):
    """The events of one topic and tenant: how many, of how many keys, and when the first and the last were said."""

    topic: str
    tenant: str
    events: int = 0
    keys: int = 0
    oldest: float = 0.0
    newest: float = 0.0


class Resent(msgspec.Struct, kw_only=True):
    """What came of it for one App. `forgotten` were left out: they stand in no order, and are so old that a consumer may have
    applied and forgotten them. `gone` are those that were sent and are in the store no more, by topic. `refused`: by the broker,
    by its words."""

    service: str
    parts: Sequence[Part] = ()
    sent: int = 0
    forgotten: int = 0
    gone: Mapping[str, int] = {}
    refused: Mapping[str, int] = {}

    @property
    def events(self) -> int:
        """How many there are to be sent."""
        return sum(part.events for part in self.parts)


async def resend(
    apps: Sequence[App], choice: Choice, *, dry_run: bool = False, by: str = "", why: str = ""
) -> list[Resent]:
    """Send again what fits, from the store of each App; what its consumers have is asked of the stores of all of them. With
    `dry_run` it is only counted. Raises BrokerUnavailable: then some of it was sent, and all of it can be sent again."""
    return [await _resend(app, apps, choice, dry_run=dry_run, by=by, why=why) for app in apps]


async def _resend(app: App, apps: Sequence[App], choice: Choice, *, dry_run: bool, by: str, why: str) -> Resent:
    tally = Tally(app, apps, choice)
    if dry_run:
        async for _ in tally.pages():
            pass
        return await tally.result()
    _refuse_without_right(app, choice)
    await app.broker.ensure(app.opened.whole_topology())  # a topic that was lost too is made again
    action = Action(
        verb="outbox resend",
        topic=choice.topic or "",
        tenant=choice.tenant or "",
        key=choice.key or "",
        by=by,
        why=why,
        count=0,
    )
    async with OperatorsLog(app.store, app.opened.name).doing(action) as act:
        async for rows in tally.pages():
            await _publish_as_granted(app, rows, tally, act, by)
    return await tally.result()


def _refuse_without_right(app: App, choice: Choice) -> None:
    keeper = app.opened.keeper
    if keeper is None:
        return
    for service in app.services:
        said = {known.topic for known in service.declared.own_events}
        keeper.refuse_replay(service.name, said if choice.topic is None else said & {choice.topic})


async def _publish_as_granted(app: App, rows: Sequence[OutboxRow], tally: Tally, act: Act, by: str) -> None:
    """So many at a time as a grant of whoever asked allows. GrantNeeded as soon as it does not."""
    if not app.grants.needed:
        await _publish(app, rows, tally, act)
        return
    for service, of_one in groupby(rows, lambda row: _owner(app, row.topic)):
        left = list(of_one)
        while left:
            drawn = await app.grants.draw(service, "replay", tally.scope, by, len(left))
            await _publish(app, left[:drawn], tally, act)
            left = left[drawn:]


def _owner(app: App, topic: str) -> str:
    """Whose grant is needed to send events of a topic again: its owner's; of dead letters of others whoever wrote them."""
    found = (service.name for service in app.services if Party(service.name, service.namespace).owns(topic))
    return next(found, app.services[0].name)


async def _publish(app: App, rows: Sequence[OutboxRow], tally: Tally, act: Act) -> None:
    frames = again(frames_of(rows)) if app.broker.sheet.native_dedup_s else frames_of(rows)
    verdicts = await app.opened.seam.publish(app.broker, app.opened.name, frames)
    for verdict in verdicts:
        if verdict.accepted:
            tally.sent += 1
        else:
            tally.refused[verdict.reason] += 1
    act.count = tally.sent


def again(frames: Sequence[Frame]) -> list[Frame]:
    """The same frames under other names: a broker that drops repeats knows those that it lost as well."""
    mark = new_id()
    return [msgspec.structs.replace(frame, id=f"{frame.id}+{mark[-12:]}") for frame in frames]


class Tally:
    """Chooses from the outbox of an App, and counts."""

    def __init__(self, app: App, apps: Sequence[App], choice: Choice) -> None:
        self._app = app
        self._choice = choice
        self.scope = choice.scope
        self._lacking = Lacking(apps) if choice.missing else None
        self._unordered = unordered_topics(apps)
        self._remembered_since = app.clock.now() - min(known.settings.inbox_retention for known in apps)
        self._parts: dict[tuple[str, str], Part] = {}
        self._keys: set[tuple[str, str, str | None]] = set()
        self._kept: Counter[str] = Counter()
        self._begun: Counts | None = None
        self._forgotten = 0
        self.sent = 0
        self.refused: Counter[str] = Counter()

    async def pages(self) -> AsyncIterator[Sequence[OutboxRow]]:
        """Those to be sent, in the order of their ids, and so per key in that of their numbers. Up to the last that was there
        at the beginning: whoever went on would run after a relay that is faster."""
        self._begun = await self._app.store.counts()
        wanted, after, last = self._choice.in_the_store, 0, await self._app.store.outbox.newest()
        while found := [row for row in await self._app.store.outbox.sent(wanted, after, PAGE) if row.id <= last]:
            after = found[-1].id
            self._kept.update(row.topic for row in found)
            if rows := await self._chosen(found):
                yield rows

    async def _chosen(self, found: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        choice = self._choice
        rows = [row for row in found if _between(choice.since, said_at(row), choice.until)]
        if self._lacking is not None:
            rows = await self._lacking.of(rows)
        if not choice.force:
            known = [row for row in rows if not self._may_be_forgotten(row)]
            self._forgotten += len(rows) - len(known)
            rows = known
        for row in rows:
            self._count(row)
        return rows

    def _may_be_forgotten(self, row: OutboxRow) -> bool:
        """Whether a consumer would set it aside: it cannot tell any more whether it has applied it."""
        if row.sequence is not None and row.topic not in self._unordered:
            return False
        return happened_at(row) <= self._remembered_since

    def _count(self, row: OutboxRow) -> None:
        place, said = (row.topic, row.tenant), said_at(row)
        part = self._parts.setdefault(place, Part(topic=row.topic, tenant=row.tenant, oldest=said, newest=said))
        part.events += 1
        part.oldest, part.newest = min(part.oldest, said), max(part.newest, said)
        if (spot := (*place, row.key)) not in self._keys and row.key is not None:
            self._keys.add(spot)
            part.keys += 1

    async def result(self) -> Resent:
        """What was counted so far."""
        now = await self._app.store.counts()
        then = self._begun or now
        topics = [topic for topic in then.committed if self._choice.topic in (None, topic)]
        waiting = {
            t: min(then.unsent.get(t, 0), now.unsent.get(t, 0)) for t in topics
        }  # some were sent since, and read
        gone = {t: then.committed[t] - waiting[t] - self._kept[t] for t in topics}
        return Resent(
            service=self._app.opened.name,
            parts=sorted(self._parts.values(), key=lambda part: (part.topic, part.tenant)),
            sent=self.sent,
            forgotten=self._forgotten,
            gone={} if self._choice.tenant or self._choice.key else {t: n for t, n in gone.items() if n > 0},
            refused=dict(self.refused),
        )


class Reader(NamedTuple):
    """A consumer group, and where its inbox is."""

    group: str
    handlers: Mapping[str, Handler]
    store: Store


class Lacking:
    """Which events the consumers of some Apps have not: neither applied, nor held, nor given up. Asked key by key, so that nobody
    waits; what is on its way at this moment is lacking too."""

    def __init__(self, apps: Sequence[App]) -> None:
        self._readers: dict[str, list[Reader]] = {}
        for reader in readers_of(apps):
            for topic in topics_of(reader.handlers):
                self._readers.setdefault(topic, []).append(reader)
        self._passed: dict[tuple[str, str, str, str | None], tuple[KeyPosition | None, Collection[str]]] = {}

    async def of(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those that at least one consumer has not."""
        return [row for row in rows if await self._is_lacking(row)]

    async def _is_lacking(self, row: OutboxRow) -> bool:
        for reader in self._readers.get(row.topic, ()):
            ordered = row.sequence is not None and is_ordered(reader.handlers, row.topic)
            if await (self._is_ahead(reader, row) if ordered else self._is_unseen(reader, row)):
                return True
        return False

    async def _is_ahead(self, reader: Reader, row: OutboxRow) -> bool:
        """Whether its key has not gone past it, under its lineage, and it is not held. The same number of another lineage is
        another event, which may have been run out of order."""
        place = (reader.group, row.topic, row.tenant, row.key)
        if place not in self._passed:
            known = await _known(reader, row, row.sequence)
            held = await _held(reader, row)
            self._passed[place] = (known if isinstance(known, KeyPosition) else None, held)
        position, held = self._passed[place]
        number = row.sequence or 0
        if row.event_id in held or (position is not None and position.has_passed(row.lineage, number)):
            return False
        return position is None or number > position.sequence or await self._is_unseen(reader, row)

    async def _is_unseen(self, reader: Reader, row: OutboxRow) -> bool:
        return await _known(reader, row, None) is None


async def _known(reader: Reader, row: OutboxRow, sequence: int | None) -> object:
    entry = InboxEntry(
        topic=row.topic,
        tenant=row.tenant,
        event_id=row.event_id,
        digest=b"",
        time=0.0,
        key=row.key,
        sequence=sequence,
        lineage=row.lineage,
    )
    async with reader.store.begin() as tx:
        return await reader.store.inbox.position_of(tx, reader.group, entry)


async def _held(reader: Reader, row: OutboxRow) -> Collection[str]:
    wanted = HeldFilter(consumer=reader.group, topic=row.topic, tenant=row.tenant, key=row.key)
    found: set[str] = set()
    after = 0
    while page := await reader.store.held.find(wanted, after=after, limit=1000):
        found |= {held.entry.event_id for held in page}
        after = page[-1].id
    return found


def readers_of(apps: Sequence[App]) -> list[Reader]:
    """The consumer groups of some Apps."""
    return [
        Reader(group, handlers, app.store)
        for app in apps
        for service in app.services
        for group, handlers in app.opened.groups(service).items()
    ]


def unordered_topics(apps: Sequence[App]) -> set[str]:
    """The topics that some consumer reads without order."""
    return {
        topic
        for reader in readers_of(apps)
        for topic in topics_of(reader.handlers)
        if not is_ordered(reader.handlers, topic)
    }


def said_at(row: OutboxRow) -> float:
    """When the event was said: when its id was drawn, or, of another kind of id, what its envelope says."""
    return drawn_at(row.event_id) / 1000 or happened_at(row)


def happened_at(row: OutboxRow) -> float:
    """The time in the envelope, by which a consumer tells what it may have forgotten; 0 where there is none. Of a dead letter that
    nobody could read: when its id was drawn."""
    try:
        event = decode_any(row.headers, row.body)
    except DecodeError:
        return drawn_at(row.event_id) / 1000
    return event.occurred_at.timestamp() if event.time else 0.0


def _between(since: float | None, moment: float, until: float | None) -> bool:
    return (since is None or moment >= since) and (until is None or moment < until)

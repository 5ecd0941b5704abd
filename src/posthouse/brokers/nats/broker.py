"""NatsBroker: topics as JetStream streams, order per key by partition subjects, cursors of our own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.group.member import GroupMember
from posthouse.brokers.nats.admin import Inventory, called
from posthouse.brokers.nats.buffer import PartitionBuffer
from posthouse.brokers.nats.checks import is_durable, topic_checks, version_check
from posthouse.brokers.nats.client import CODE_MISSING, Client, Refused
from posthouse.brokers.nats.ledger import Assignment, Ledger, Versioned
from posthouse.brokers.nats.log import NatsLog
from posthouse.brokers.nats.messages import moment, stream_of, subjects_of
from posthouse.brokers.nats.permitted import permitted
from posthouse.brokers.nats.publishing import Call
from posthouse.brokers.nats.topics import NANO, Config, Settings, Topic, Topics
from posthouse.checks import Check, warnings
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable, did_you_mean
from posthouse.survey import Age, Resource, Wish, wanted, with_missing

LEASE = 6.0
"""Seconds after which the partitions of a member that fell silent go to others; it renews every third of that."""
OVERHEAD = 8 * 1024
"""Bytes of a message that are kept for what we add to it and for the punctuation of headers."""
ATTEMPTS = 100
"""To move a group whose members save their cursors at the same moment."""
STEPS = 16
"""Over so many frames that are done the oldest that is not is looked for: its age is good to know, and not worth a longer wait."""
MEBIBYTE = 1024 * 1024
WEEK = 7 * 86_400.0
Sync = Literal["always", "default"]


class NatsBroker:
    """JetStream of NATS 2.11 or later, as a log. `url` may name several servers, with commas.

    `partitions`: of topics made by this instance, and so the most members of a group that can work side by side; fixed
    once the topic exists. `replicas`: of what is made. `retention`: seconds after which the server deletes frames,
    read or not; None keeps them until you purge the stream. `dedup`: seconds for which a repeated id is dropped.
    `sync="always"` declares that the servers run with `sync_interval: always`, which a client cannot see.
    `driver` is passed to nats-py's `connect` as it is.

    `Progress.pending` counts from the cursor: a frame acknowledged before an older one of its partition counts until
    the older one is acknowledged too, or its member has left. `Progress.truncated` may be True too often where `retention` is set.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        partitions: int = 8,
        replicas: int = 1,
        retention: float | None = None,
        dedup: float = 120.0,
        sync: Sync = "default",
        timeout: float = 5.0,
        lease: float = LEASE,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        self._client = Client(servers_of(url), timeout=timeout, driver=driver or {})
        self._settings = settings = Settings(partitions=partitions, replicas=replicas, retention=retention, dedup=dedup)
        self._topics = Topics(self._client, settings)
        self._made = Config(num_replicas=replicas)
        """What the promise rests on as long as no stream is known: those that will be made."""
        self._inventory = Inventory(self._client, settings, lease)
        self._clock = clock
        self._lease = lease
        self._sync: Sync = sync
        self._streams: set[GroupMember[PartitionBuffer]] = set()
        self.sheet = Capabilities(
            name="nats",
            durable_ack=sync == "always" or replicas >= 3,
            ordered_publish=True,
            ordered_redelivery=True,
            native_dedup_s=min(dedup, retention or dedup),
            seek=True,
            max_bytes=MEBIBYTE - OVERHEAD,
            retains_unacked=retention is None,
            redelivery_s=retention or WEEK,
        )

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read, and the groups."""
        names = {*topology.topics, *(topic for group in topology.groups.values() for topic in group)}
        self._settings.ages.update(topology.retention)
        await self._topics.make(sorted(names))
        for group, topics in topology.groups.items():
            for topic in topics:
                await self._begin(group, await self._topics.look(topic), "earliest")
        await self._fill_in()

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """A batch of one topic is stored together where the server can; see `publishing`."""
        if not frames:
            return []
        await self._fill_in()
        await self._topics.find({frame.topic for frame in frames})
        call = Call(self._client, self._topics, frames, self.sheet.max_bytes)
        await call.store()
        return call.verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> GroupMember[PartitionBuffer]:
        """A topic that does not exist raises BrokerError: a misspelled one would wait for ever."""
        for topic in topics:
            await self._begin(group, await self._existing(topic), start)
        log = NatsLog(self._client, self._topics, group, topics, window=window, lease=self._lease)
        stream = GroupMember(log, group, topics, clock=self._clock, lease=self._lease)
        await stream.join(self._streams)
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """`position` is a `Delivery.position`. Frames stored before the seek come as redelivered."""
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        found, ledger = await self._existing(topic), Ledger(self._client, group)
        before = await self._sequence(found, position, time) - 1
        await self._begin(group, found, "earliest")
        left = {(topic, partition) for partition in range(found.partitions + 1)}
        for _ in range(ATTEMPTS):
            lines = await ledger.lines(topic)
            moved = {spot: moved_to(before, found, line) for spot, line in lines.items() if spot in left}
            left -= (await ledger.change(moved)).keys()
            if not left:
                break
        else:
            raise BrokerUnavailable(f"seeking in {topic!r}: its members save faster than we can: try again")
        await self._client.tell(ledger.hint)

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A topic that does not exist yet stands at zero."""
        return {topic: await self._progress(group, topic) for topic in topics}

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """The settings of every stream that this instance has used."""
        checks = [version_check(await self._client.version())]
        for name in sorted(self._topics.known):
            checks += topic_checks(await self._topics.look(name), self._sync, self._settings.ages.get(name))
        await self._fill_in()
        notes = tuple(warnings(checks))
        known = [topic.config for topic in self._topics.known.values()]
        durable = all(is_durable(config, self._sync) for config in (known or [self._made]))
        waits = all(config.max_age == 0 for config in known) if known else self.sheet.retains_unacked
        self.sheet = msgspec.structs.replace(self.sheet, notes=notes, durable_ack=durable, retains_unacked=waits)
        return checks

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        return await permitted(self._client, wishes)

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        found = await self._topics.find(topics)
        return {name: Age((found[name].config.max_age / NANO) or None, False, True) for name in topics if name in found}

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        """Streams that somebody else made are left out, also where they hold our subjects. Those that the topology names are
        known from then on, and judged by the checks."""
        self._settings.ages.update(topology.retention)
        await self._topics.find({topic for topic, _ in wanted(topology)})
        found = [await self._counted(resource) for resource in await self._inventory.found()]
        return with_missing(topology, found, called)

    async def repair(self, resource: Resource) -> None:
        await self._inventory.repair(resource.topic)
        await self._topics.look(resource.topic)

    async def remove(self, resources: Sequence[Resource]) -> None:
        await self._inventory.remove(resources)
        for resource in resources:
            self._topics.forget(resource.topic)

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await self._client.aclose()

    async def _fill_in(self) -> None:
        """What only the server knows."""
        room = await self._client.max_payload() - OVERHEAD
        if room != self.sheet.max_bytes:
            self.sheet = msgspec.structs.replace(self.sheet, max_bytes=room)

    async def _counted(self, resource: Resource) -> Resource:
        if resource.group is None:
            return resource
        return msgspec.structs.replace(resource, frames=(await self._progress(resource.group, resource.topic)).pending)

    async def _existing(self, topic: str) -> Topic:
        try:
            return await self._topics.look(topic)
        except Refused as error:
            if error.code != CODE_MISSING:
                raise
            raise BrokerError(f"topic {topic!r} does not exist.{did_you_mean(topic, self._topics.known)}") from error

    async def _begin(self, group: str, topic: Topic, start: Start) -> None:
        """Lines for the partitions that the group has never seen. One that was declared and never read is new as well."""
        ledger = Ledger(self._client, group)
        first = topic.last if start == "latest" else max(0, topic.first - 1)
        new = Assignment(born=topic.created, cursor=first, started=first)
        known = await ledger.lines(topic.name)
        spots: list[TopicPartition] = [(topic.name, partition) for partition in range(topic.partitions + 1)]
        await ledger.begin({spot: new for spot in spots if spot not in known})
        if start == "latest":
            await ledger.change(
                {spot: Versioned(new, known[spot].version) for spot in known if known[spot].assignment.epoch == 0}
            )

    async def _sequence(self, topic: Topic, position: int | str | None, time: float | None) -> int:
        """Of the first frame at or after a position or a time; behind the last when there is none."""
        if time is None:
            return min(max(offset(position), 1), topic.last + 1)
        since = datetime.fromtimestamp(max(0.0, time), UTC).isoformat()
        found = await self._client.read(stream_of(topic.name), {"start_time": since, "batch": 1})
        return int((found[0].headers or {})["Nats-Sequence"]) if found else topic.last + 1

    async def _progress(self, group: str, name: str) -> Progress:
        try:
            topic = await self._topics.look(name)
        except Refused as error:
            if error.code != CODE_MISSING:
                raise
            return Progress(stored=0, pending=0, truncated=False, oldest=0.0)
        lines = await Ledger(self._client, group).lines(name)
        none = Versioned(Assignment(born=topic.created, started=max(0, topic.first - 1)), 0)
        claims = [lines.get((name, n), none).assignment for n in range(topic.partitions + 1)]
        claims = [claim if claim.born == topic.created else none.assignment for claim in claims]
        subjects = subjects_of(name, topic.partitions)
        found = await asyncio.gather(
            *(self._unread(topic, subject, claim) for subject, claim in zip(subjects, claims, strict=True))
        )
        counts = [count for count, _ in found]
        now = self._clock.now() if topic.asked_at is None else topic.asked_at
        unsure = sum(doubted(claim, behind) for claim, behind in zip(claims, counts, strict=True))
        late = any(claim.started > 0 for claim in claims)
        # An idle partition stays behind what retention took of others: nobody can say that it had those to read.
        gone = any(claim.cursor < topic.first - 1 for claim in claims)
        return Progress(
            stored=topic.last,
            pending=sum(counts),
            truncated=late or gone,
            whole=not late,
            unsure=unsure,
            behind=tuple(counts),
            oldest=age_of([at for _, at in found if at is not None], now),
        )

    async def _unread(self, topic: Topic, subject: str, claim: Assignment) -> tuple[int, float | None]:
        """How many frames of a partition are behind the cursor, without those acknowledged there that are still stored, and
        when the first of them was stored: not a number where that takes too many steps to find."""
        done = [sequence for sequence in claim.done if max(claim.cursor + 1, topic.first) <= sequence <= topic.last]
        first = at = await self._first(topic.name, subject, claim.cursor + 1)
        steps = 0
        while at is not None and at.sequence in done and steps < STEPS:
            at, steps = await self._first(topic.name, subject, at.sequence + 1), steps + 1
        if topic.holes:
            done = [sequence for sequence in done if await self._is_there(topic.name, subject, sequence)]
        behind = 0 if first is None else 1 + first.further
        if at is None:
            return max(0, behind - len(done)), None
        return max(0, behind - len(done)), math.nan if at.sequence in done else at.stored_at

    async def _first(self, topic: str, subject: str, sequence: int) -> At | None:
        """The first frame of a partition at or after a sequence."""
        found = await self._client.read(stream_of(topic), {"seq": sequence, "next_by_subj": subject, "batch": 1})
        if not found:
            return None
        said = found[0].headers or {}
        return At(int(said["Nats-Sequence"]), int(said["Nats-Num-Pending"]), moment(said["Nats-Time-Stamp"]))

    async def _is_there(self, topic: str, subject: str, sequence: int) -> bool:
        found = await self._first(topic, subject, sequence)
        return found is not None and found.sequence == sequence


def age_of(times: Sequence[float], now: float) -> float | None:
    """The age of the oldest; None where one of them is not known."""
    return None if any(map(math.isnan, times)) else max((max(0.0, now - at) for at in times), default=0.0)


class At(NamedTuple):
    """A frame of a partition, and how many come after it there."""

    sequence: int
    further: int
    stored_at: float


def servers_of(url: str) -> list[str]:
    """`nats://user:word@a:4222,b:4222` names two servers, with the same rights on both."""
    scheme, _, rest = url.partition("://")
    rights, at, hosts = rest.rstrip("/").rpartition("@")
    return [f"{scheme}://{rights}{at}{host}" for host in hosts.split(",")]


def offset(position: int | str | None) -> int:
    try:
        return int(position or 0)
    except ValueError:
        raise BrokerError(f"position {position!r} is not one of this log: it takes whole numbers") from None


def doubted(claim: Assignment, behind: int) -> int:
    """How many of the frames behind the cursor may have been dealt with though nobody said so, at most."""
    if claim.until > claim.cursor:
        return behind
    return min(behind, claim.unsure if claim.owner is None else claim.handed)


def moved_to(cursor: int, topic: Topic, line: Versioned) -> Versioned:
    claim = msgspec.structs.replace(
        line.assignment,
        born=topic.created,
        epoch=line.assignment.epoch + 1,
        cursor=cursor,
        at=0.0,
        until=topic.last,
        done=(),
        unsure=0,
    )
    return Versioned(claim, line.version)

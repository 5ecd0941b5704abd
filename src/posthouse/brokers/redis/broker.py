"""RedisBroker: topics as streams, order per key by lanes with one owner at a time, native groups for what was read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.group.member import GroupMember
from posthouse.brokers.redis.admin import Inventory, called
from posthouse.brokers.redis.buffer import PartitionBuffer
from posthouse.brokers.redis.checks import Settings, Sync
from posthouse.brokers.redis.client import Client, Value
from posthouse.brokers.redis.entries import HEADERS, Place, before, entry_at, place_of, sought
from posthouse.brokers.redis.log import RedisLog
from posthouse.brokers.redis.permitted import permitted
from posthouse.brokers.redis.publishing import Call
from posthouse.brokers.redis.scripts import BEGIN, COUNT, PRUNE, SEEK, STAND
from posthouse.brokers.redis.topics import Topics, bell_of, ledger_of
from posthouse.checks import Check, warnings
from posthouse.clock import Clock
from posthouse.errors import BrokerError
from posthouse.survey import Age, Resource, Wish, with_missing

LEASE = 6.0
"""Seconds after which the lanes of a member that fell silent go to others; it renews every third of that."""
DAY = 86_400.0
PRUNING = 60.0
"""Seconds between two looks for what may be deleted."""


class RedisBroker:
    """Streams of Redis 7.0 or later, as a log.

    `partitions`: of topics made by this instance, and so the most members of a group that can work side by side; fixed
    once the topic exists. `retention`: seconds that frames are kept at least; older ones leave once every group has
    acknowledged them, never before; None keeps all. `sync="always"` declares that the server has `appendonly yes` and
    `appendfsync always`, where it may not be asked. `timeout`: seconds after which an answer counts as lost. `driver`
    is passed to redis-py's `Redis.from_url` as it is.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        partitions: int = 8,
        retention: float | None = DAY,
        sync: Sync = "default",
        timeout: float = 5.0,
        lease: float = LEASE,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        self._client = Client(url, timeout=timeout, driver=driver or {})
        self._topics = Topics(self._client, partitions)
        self._inventory = Inventory(self._client, partitions)
        self._clock = clock
        self._retention = retention
        self._sync: Sync = sync
        self._lease = lease
        self._pruned = float("-inf")
        self._settings: Settings | None = None
        self._streams: set[GroupMember[PartitionBuffer]] = set()
        self.sheet = Capabilities(
            name="redis",
            durable_ack=sync == "always",
            ordered_publish=True,
            ordered_redelivery=True,
            seek=True,
            header_limit=HEADERS,
            redelivery_s=7 * DAY if retention is None else retention,
        )

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read, and the groups."""
        await self._topics.make({*topology.topics, *(topic for group in topology.groups.values() for topic in group)})
        for group, topics in topology.groups.items():
            for topic in topics:
                await self._begin(group, topic, "declared")
        await self._fill_in()

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """Frames of one topic are stored together; see `publishing`."""
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
        await self._fill_in()
        lanes = {topic: await self._topics.existing(topic) for topic in topics}
        log = RedisLog(self._client, group, lanes, start=start, window=window, lease=self._lease)
        stream = GroupMember(log, group, topics, clock=self._clock, lease=self._lease, on_beat=self._on_beat)
        await stream.join(self._streams)
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """`position` is a `Delivery.position`. Frames stored before the seek come as redelivered."""
        target = before(sought(position, time))
        await self._topics.existing(topic)
        await self._begin(group, topic, "earliest")
        standings = await self._stand(group, topic)
        arguments: list[Value] = [group]
        for number, lane in enumerate(self._topics.lanes(topic)):
            if lane in standings:
                place = min(target, standings[lane].last)
                arguments += (number, entry_at(place), await self._rank(lane, standings[lane], place))
        await self._client.run(SEEK, [ledger_of(group, topic), bell_of(group), *standings], arguments)

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A topic that does not exist yet stands at zero."""
        return {topic: await self._progress(group, topic) for topic in topics}

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        self._settings = None
        settings = await self._fill_in()
        checks = settings.checks(today=today)
        self.sheet = msgspec.structs.replace(self.sheet, notes=tuple(warnings(checks)))
        return checks

    async def prune(self) -> int:
        """Delete frames that are older than the retention and acknowledged by every group, also by groups of others, in
        the topics that this instance has used. Returns how many."""
        lanes = [lane for topic in self._topics.known for lane in self._topics.lanes(topic)]
        if self._retention is None or not lanes:
            return 0
        return int(await self._client.run(PRUNE, lanes, [int(self._retention * 1000)]))

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        return await permitted(self._client, wishes)

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        return dict.fromkeys(topics, Age(self._retention, True, False))

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        found = [await self._counted(resource) for resource in await self._inventory.found()]
        return with_missing(topology, found, called)

    async def repair(self, resource: Resource) -> None:
        """Nothing of a topic can be changed here."""

    async def remove(self, resources: Sequence[Resource]) -> None:
        await self._inventory.remove(resources)
        for resource in resources:
            self._topics.forget(resource.topic)

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await self._client.aclose()

    async def _counted(self, resource: Resource) -> Resource:
        if resource.group is None:
            return resource
        return msgspec.structs.replace(resource, frames=(await self._progress(resource.group, resource.topic)).pending)

    async def _begin(self, group: str, topic: str, start: Start | Literal["declared"]) -> None:
        await self._client.run(BEGIN, [ledger_of(group, topic), *self._topics.lanes(topic)], [group, start])

    async def _fill_in(self) -> Settings:
        """What only the server knows."""
        if self._settings is None:
            info, config = await self._client.info(), await self._client.config()
            self._settings = Settings(info=info, config=config, sync=self._sync)
            self.sheet = msgspec.structs.replace(self.sheet, durable_ack=self._settings.durable)
        return self._settings

    async def _on_beat(self) -> None:
        if self._clock.monotonic() - self._pruned >= PRUNING:
            self._pruned = self._clock.monotonic()
            with contextlib.suppress(BrokerError):
                await self.prune()

    async def _stand(self, group: str, topic: str) -> dict[str, Standing]:
        """Of each lane that is there."""
        lanes = self._topics.lanes(topic)
        answers = await self._client.run(STAND, [ledger_of(group, topic), *lanes], [group])
        return {lane: Standing.of(answer) for lane, answer in zip(lanes, answers, strict=True) if answer}

    async def _rank(self, lane: str, standing: Standing, place: Place) -> int:
        """How many entries were ever added up to a place."""
        if place == (0, 0):
            return standing.added - standing.length
        return standing.added - await self._count(lane, place, standing.last)

    async def _count(self, lane: str, after: Place, last: Place) -> int:
        """Entries behind one id, up to another."""
        count = 0
        while after < last:
            found, end = await self._client.run(COUNT, [lane], [f"({entry_at(after)}", entry_at(last)])
            if not found:
                break
            count, after = count + found, place_of(end)
        return count

    async def _progress(self, group: str, topic: str) -> Progress:
        if topic not in await self._topics.find([topic]):
            return Progress(stored=0, pending=0, truncated=False, oldest=0.0)
        standings = await self._stand(group, topic)
        stored, unsure, waiting = 0, 0, []
        for lane, standing in standings.items():
            behind = standing.behind
            if (
                behind < 0 or standing.dropped
            ):  # somebody deleted entries, and the server lost count or counts them still
                behind = await self._count(lane, standing.delivered, standing.last)
            stored += standing.added
            waiting.append(min(behind + standing.in_hand, standing.length))
            unsure += min(waiting[-1], standing.unsure + (behind if standing.until > standing.delivered else 0))
        dropped = any(standing.dropped for standing in standings.values())
        whole = all(standing.hidden == 0 for standing in standings.values())
        return Progress(
            stored=stored,
            pending=sum(waiting),
            truncated=dropped or not whole,
            dropped=dropped,
            whole=whole,
            unsure=unsure,
            behind=tuple(waiting),
            oldest=max((standing.oldest for standing in standings.values()), default=0) / 1000,
        )


class Standing(NamedTuple):
    """Where a lane ends, and where a group stands in it; see the script STAND."""

    added: int
    length: int
    last: Place
    delivered: Place
    behind: int
    read: int
    in_hand: int
    hidden: int
    unsure: int
    until: Place
    oldest: int
    """Milliseconds since the first that waits was added, by the server's clock."""

    @property
    def dropped(self) -> bool:
        """Whether more entries are gone than the group has read; the server may not know how many that are (-1)."""
        return 0 <= self.read < self.added - self.length

    @classmethod
    def of(cls, answer: Sequence[Any]) -> Standing:
        added, length, last, delivered, behind, read, in_hand, hidden, unsure, until, oldest = answer
        places = place_of(last), place_of(delivered)
        return cls(added, length, *places, behind, read, in_hand, hidden, unsure, place_of(until), oldest)

"""KafkaBroker: Kafka's topics, partitions and groups, with offsets that say more than a number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.kafka.admin import Inventory, called
from posthouse.brokers.kafka.checks import is_durable, keeps, server_checks, topic_checks
from posthouse.brokers.kafka.client import CONSUMER, Client, answer, configured, mapped
from posthouse.brokers.kafka.committed_offsets import Claim, CommittedOffsets, Note, Spot
from posthouse.brokers.kafka.offsets import Offsets, next_of, progress_of, spots_of
from posthouse.brokers.kafka.permitted import permitted
from posthouse.brokers.kafka.producing import Producing
from posthouse.brokers.kafka.records import place_of
from posthouse.brokers.kafka.stream import KafkaStream
from posthouse.brokers.kafka.times import Times, age_of
from posthouse.brokers.kafka.topics import LIMIT, OVERHEAD, Settings, Topic, Topics, ids_of, values
from posthouse.checks import Check, warnings
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError
from posthouse.survey import Age, Resource, Wish, wanted, with_missing

LEASE = 10.0
"""Seconds after which the partitions of a member that fell silent go to others. Servers take no less than 6 by default."""
WEEK = 7 * 86_400.0


class KafkaBroker:
    """Apache Kafka 3.3 or later, or what speaks its protocol. `servers` are `host:9092`, several with commas.

    `partitions`: of topics made by this instance, and so the most members of a group that can work side by side; never
    changed afterwards. `replicas` and `min_insync`: of topics made by this instance. `retention`: seconds after which the
    servers delete frames, read or not; None keeps them. `timeout`: seconds without any answer. `lease`: seconds after
    which a silent member is replaced. `driver` is passed to confluent-kafka as it is, but for what the promise rests on.

    A position is `partition:offset`. `Progress.pending` counts from the cursor: a frame acknowledged before an older one of
    its partition counts until the older one is acknowledged too, or its member has left.
    """

    def __init__(
        self,
        servers: str,
        *,
        clock: Clock,
        partitions: int = 8,
        replicas: int = 1,
        min_insync: int | None = None,
        retention: float | None = None,
        timeout: float = 5.0,
        lease: float = LEASE,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        self._client = Client(servers, timeout=timeout, driver=driver or {})
        in_sync = max(1, replicas - 1) if min_insync is None else min_insync
        self._settings = Settings(partitions=partitions, replicas=replicas, min_insync=in_sync, retention=retention)
        self._topics = Topics(self._client, self._settings)
        self._offsets = Offsets(self._client)
        self._inventory = Inventory(self._client, self._topics, self._offsets, self._settings)
        self._producing = Producing(self._client, self._topics)
        self._times = Times(self._client, clock)
        self._clock = clock
        self._lease = lease
        self._groups: dict[str, CommittedOffsets] = {}
        self._streams: set[KafkaStream] = set()
        self._closed = False
        self.sheet = Capabilities(
            name="kafka",
            durable_ack=replicas >= 3 and in_sync >= 2,
            ordered_publish=True,
            ordered_redelivery=True,
            seek=True,
            max_bytes=LIMIT - OVERHEAD,
            retains_unacked=retention is None,
            redelivery_s=retention or WEEK,
        )

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read. Groups are declared: their first members say where they begin."""
        self._check_open()
        names = {*topology.topics, *(topic for group in topology.groups.values() for topic in group)}
        self._settings.ages.update(topology.retention)
        await self._topics.make(sorted(names))
        for group, topics in topology.groups.items():
            spots = [spot for topic in topics for spot in spots_of(self._topics.known[topic])]
            async with contextlib.aclosing(
                CommittedOffsets(self._client, group)
            ) as places:  # whoever only declares keeps no clients
                await places.declare(spots)
        self._fill_in()

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """All of them are on their way at once; see `producing`."""
        self._check_open()
        if not frames:
            return []
        with mapped("storing"):
            verdicts = await self._producing.store(frames)
        self._fill_in()
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> KafkaStream:
        """A topic that does not exist raises BrokerError: a misspelled one would wait for ever."""
        self._check_open()
        await self._begin(group, [await self._topics.existing(topic) for topic in topics], start)
        stream = KafkaStream(
            self._client,
            self._places(group),
            self._topics,
            topics,
            clock=self._clock,
            window=window,
            lease=self._lease,
            on_close=self._streams.discard,
        )
        self._streams.add(stream)
        stream.join()
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """`position` is a `Delivery.position`; the other partitions go to the time at which that frame was stored. Frames
        stored before the seek come as redelivered."""
        self._check_open()
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        found, places = await self._topics.existing(topic), self._places(group)
        spots = spots_of(found)
        ends = await self._offsets.ends(spots)
        firsts = await self._offsets.firsts(spots)
        targets: dict[Spot, int] = {}
        if position is not None:
            spot, offset = self._place(topic, position, spots)
            targets[spot] = min(max(offset, firsts[spot]), ends[spot])
            time = await asyncio.to_thread(self._stored_at, spot, targets[spot]) if targets[spot] < ends[spot] else None
        targets = {**await self._at(spots, time, ends), **targets}
        move, before = new_id(), await places.of(spots, ids_of([found]))
        claims = {}
        for spot in spots:
            began = claim.note.began if (claim := before[spot]) is not None else 0
            claims[spot] = Claim(targets[spot], Note(move=move, began=began, until=ends[spot], topic_id=found.id))
        await places.tell(claims)

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A topic that does not exist yet stands at zero."""
        self._check_open()
        await self._topics.look(topics)
        places = self._places(group)
        spots = [
            spot for topic in topics if topic in self._topics.known for spot in spots_of(self._topics.known[topic])
        ]
        claims = await places.of(spots, ids_of(self._topics.known.values()))
        firsts = await self._offsets.firsts(spots)
        ends = await self._offsets.ends(spots)
        waiting = {
            spot: first for spot in spots if (first := next_of(claims[spot], firsts[spot], ends[spot])) is not None
        }
        times = await self._times.of(group, waiting, ends, ids_of(self._topics.known.values()))
        now = self._clock.now()
        return {
            topic: progress_of(
                [spot for spot in spots if spot[0] == topic],
                claims,
                firsts,
                ends,
                age_of([times.get(spot) for spot in waiting if spot[0] == topic], now),
            )
            for topic in topics
        }

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """The settings of a server, and of every topic that this instance has used."""
        self._check_open()
        checks = server_checks(await self._server_config())
        await self._topics.look(sorted(self._topics.known))
        topics = self._topics.known.values()
        for topic in sorted(topics, key=lambda topic: topic.name):
            checks += topic_checks(topic, self._settings.partitions, self._settings.ages.get(topic.name))
        self._fill_in()
        self.sheet = msgspec.structs.replace(
            self.sheet,
            notes=tuple(warnings(checks)),
            durable_ack=all(map(is_durable, topics)) if topics else self.sheet.durable_ack,
            retains_unacked=all(map(keeps, topics)) if topics else self.sheet.retains_unacked,
        )
        return checks

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        """Those whose settings may be read."""
        self._check_open()
        found = await self._topics.described(topics)
        said = {name: topic.config.get("retention.ms", "") for name, topic in found.items()}
        return {name: Age(None if ms == "-1" else int(ms) / 1000, False, True) for name, ms in said.items() if ms}

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        self._check_open()
        return await permitted(self._client, wishes)

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        """Of topics that nobody asked for, those are ours on which everything is set that we set. Those that the topology
        names are known from then on, and judged by the checks."""
        self._check_open()
        asked = {topic for topic, _ in wanted(topology)}
        self._settings.ages.update(topology.retention)
        found = await self._inventory.found(asked)
        await self._topics.look(asked)
        self._fill_in()
        return with_missing(topology, found, called)

    async def repair(self, resource: Resource) -> None:
        """A place has no settings."""
        self._check_open()
        if resource.group is None:
            await self._inventory.repair(resource.topic)
            await self._topics.look([resource.topic])
            self._fill_in()

    async def remove(self, resources: Sequence[Resource]) -> None:
        self._check_open()
        await self._inventory.remove(resources)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await asyncio.gather(*(places.aclose() for places in self._groups.values()), self._times.aclose())
        self._producing.close()

    def _places(self, group: str) -> CommittedOffsets:
        return self._groups.setdefault(group, CommittedOffsets(self._client, group))

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerError("this broker was closed")

    def _fill_in(self) -> None:
        """What only the servers know: the smallest topic says how large a frame may be."""
        room = min((topic.room for topic in self._topics.known.values()), default=LIMIT - OVERHEAD)
        if room != self.sheet.max_bytes:
            self.sheet = msgspec.structs.replace(self.sheet, max_bytes=room)

    async def _begin(self, group: str, topics: Sequence[Topic], start: Start) -> None:
        """A place for the partitions that the group has never seen."""
        places, topic_ids = self._places(group), ids_of(topics)
        found = await places.of([spot for topic in topics for spot in spots_of(topic)], topic_ids)
        new = [spot for spot, claim in found.items() if claim is None]
        at = await (self._offsets.ends(new) if start == "latest" else self._offsets.firsts(new))
        move = new_id()
        await places.begin(
            {spot: Claim(at[spot], Note(move=move, began=at[spot], topic_id=topic_ids[spot[0]])) for spot in new}
        )

    def _place(self, topic: str, position: int | str, spots: Sequence[Spot]) -> tuple[Spot, int]:
        try:
            partition, offset = place_of(position)
        except ValueError:
            raise BrokerError(f"position {position!r} is not one of this log: it takes 'partition:offset'") from None
        if (topic, partition) not in spots:
            raise BrokerError(f"position {position!r}: topic {topic!r} has partitions 0 to {len(spots) - 1}")
        return (topic, partition), offset

    async def _at(self, spots: Sequence[Spot], time: float | None, ends: Mapping[Spot, int]) -> dict[Spot, int]:
        """The first offset of each partition at or after a time; behind the last where there is none."""
        if time is None:
            return dict(ends)
        found = await self._offsets.at(spots, time)
        return {spot: offset if offset >= 0 else ends[spot] for spot, offset in found.items()}

    def _stored_at(self, spot: Spot, offset: int) -> float:
        """When the frame at an offset was stored. In a thread of its own: it waits."""
        with mapped(f"reading {spot[0]}:{spot[1]}:{offset}"), configured():
            consumer = Consumer(self._client.config({"group.id": f"posthouse-{new_id()}"}, CONSUMER))
            try:
                consumer.assign([TopicPartition(*spot, offset)])
                messages = consumer.consume(1, self._client.timeout)
                error = messages[0].error() if messages else KafkaError(KafkaError._TIMED_OUT)
                if error is not None:
                    raise KafkaException(error)
                return messages[0].timestamp()[1] / 1000
            finally:
                consumer.close()

    async def _server_config(self) -> Mapping[str, str]:
        doing = "looking at the servers"
        cluster = await self._client.ask(
            doing, lambda admin, patience: {"": admin.describe_cluster(request_timeout=patience)}
        )
        resource = ConfigResource(ResourceType.BROKER, str(answer(doing, cluster[""]).nodes[0].id))
        configs = await self._client.ask(
            doing, lambda admin, patience: admin.describe_configs([resource], request_timeout=patience)
        )
        return values(configs[resource])

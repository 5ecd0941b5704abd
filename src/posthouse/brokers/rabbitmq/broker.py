"""RabbitmqBroker: topics as exchanges, order per key by lanes of quorum queues with one active consumer each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.rabbitmq.admin import Inventory, called
from posthouse.brokers.rabbitmq.client import Client
from posthouse.brokers.rabbitmq.drift import HIDDEN
from posthouse.brokers.rabbitmq.management import Management
from posthouse.brokers.rabbitmq.permitted import permitted
from posthouse.brokers.rabbitmq.publishing import Publisher
from posthouse.brokers.rabbitmq.questions import Questions
from posthouse.brokers.rabbitmq.stream import RabbitmqStream
from posthouse.brokers.rabbitmq.topics import COUNTS, Topics, lane_queue
from posthouse.checks import Check, judged, warnings
from posthouse.clock import Clock
from posthouse.errors import BrokerError, ConfigurationError, SeekUnsupported, did_you_mean
from posthouse.survey import Drift, Resource, Wish, wanted, with_missing

LEAST = (3, 10)
MEBIBYTE = 1024 * 1024
WEEK = 7 * 86_400.0
IN_OTHER_HANDS = "members of other processes may have them in hand, which RabbitMQ does not tell"
HISTORY = "a new group begins with what is published after it was made: RabbitMQ's queues keep no history"


class RabbitmqBroker:
    """RabbitMQ 3.10 or later. `url` is one of AMQP: `amqp://user:word@host:5672/vhost`, `amqps://` for TLS.

    `partitions`: lanes of groups made by this instance, a power of two up to 64, and so the most members of a group
    that can work side by side; fixed once the group exists. `replicas`: of a lane, where the cluster's own number is
    not wanted. `unread`: how many frames of a topic are kept that no group took. `heartbeat`: whole seconds; a member
    that is silent for twice as long is replaced. `timeout`: seconds for one answer. `settle`: seconds that `ensure`
    waits after it made something: a queue that is younger when its server is killed may be lost. `management`:
    the URL of its management API, `http://host:15672`; with it a survey sees everything, without it what is asked for.
    `driver` is passed to aiormq's `connect` as it is.

    `Delivery.stored_at` is when the publisher said it. `Progress.pending` counts what waits in the lanes and what
    members of this instance have in hand; what those of other processes have is not known.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        partitions: int = 8,
        replicas: int | None = None,
        unread: int = 10_000,
        heartbeat: int = 5,
        timeout: float = 5.0,
        settle: float = 1.0,
        management: str | None = None,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        if partitions not in COUNTS:
            raise ConfigurationError(f"partitions must be one of {', '.join(map(str, COUNTS))}, not {partitions}")
        self._client = Client(url, timeout=timeout, heartbeat=heartbeat, driver=driver or {})
        self._places = Topics(self._client, lanes=partitions, replicas=replicas, unread=unread)
        self._questions = Questions(self._client, self._places)
        tls = (driver or {}).get("context")
        lists = None
        if management is not None:
            context = tls if isinstance(tls, ssl.SSLContext) else None
            lists = Management(management, url, timeout=timeout, tls=context)
        self._lists = lists
        self._inventory = Inventory(self._places, self._questions, lists)
        self._settle = settle
        self._clock = clock
        self._streams: set[RabbitmqStream] = set()
        self.sheet = Capabilities(
            name="rabbitmq",
            durable_ack=True,
            ordered_publish=True,
            ordered_redelivery=True,
            history=False,
            max_bytes=8 * MEBIBYTE,
            redelivery_s=WEEK,
            notes=(HISTORY,),
        )
        self._publisher = Publisher(self._client, self._places, clock, self.sheet.max_bytes)

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read, and the groups."""
        made = self._places.made
        for topic in sorted({*topology.topics, *(topic for topics in topology.groups.values() for topic in topics)}):
            await self._places.make_topic(topic)
        for group, topics in topology.groups.items():
            for topic in topics:
                await self._places.make_group(group, topic)
        if self._places.made != made:
            await asyncio.sleep(self._settle)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """Of each key one frame at a time waits for its confirmation; see `publishing`."""
        try:
            return await self._publisher.publish(frames) if frames else []
        finally:
            if self._publisher.room != self.sheet.max_bytes:
                self.sheet = msgspec.structs.replace(self.sheet, max_bytes=self._publisher.room)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> RabbitmqStream:
        """`start` changes nothing: a new group has nothing behind it. A topic that does not exist raises BrokerError."""
        for topic in topics:
            if not await self._places.has_topic(topic):
                raise BrokerError(f"topic {topic!r} does not exist.{did_you_mean(topic, self._places.topics)}")
        stream = RabbitmqStream(
            self._client.twin(),
            self._places,
            group,
            topics,
            clock=self._clock,
            window=window,
            on_close=self._streams.discard,
        )
        self._streams.add(stream)
        try:
            await stream.join()
        except BaseException:
            stream.abandon()
            raise
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """Never possible."""
        raise SeekUnsupported("RabbitMQ's queues keep no history: replay from the archive")

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """Of a topic, what the lanes hold for the group."""
        return {topic: await self._progress(group, topic) for topic in topics}

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """The exchanges and lanes that this instance has used: the server compares them with what we would make."""
        checks = [version_check(await self._client.version()), self._inventory.check()]
        for topic in sorted(self._places.topics):
            checks.append(as_made(f"topic {topic}", await self._questions.topic(topic), lost="refused"))
        for (group, topic), lanes in sorted(self._places.groups.items()):
            checks.append(
                as_made(f"lanes of {group} in {topic}", await self._questions.lanes(group, topic, lanes), lost="lost")
            )
        self.sheet = msgspec.structs.replace(self.sheet, notes=(HISTORY, *warnings(checks)))
        return checks

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        """AMQP tells nothing: None without `management`, and where its user may not look at permissions."""
        return [None] * len(wishes) if self._lists is None else await permitted(self._lists, wishes)

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        """AMQP lists nothing: without `management` these are the resources that the topology names. What it names is known from
        then on, and judged by the checks."""
        asked = wanted(topology)
        for topic, _ in asked:
            self._places.forget(topic)
        found = [await self._counted(resource) for resource in await self._inventory.found(topology)]
        for resource in found:
            if (resource.topic, resource.group) in asked:
                await self._places.remember(resource.topic, resource.group)
        return with_missing(topology, found, called)

    async def repair(self, resource: Resource) -> None:
        """Make again what is missing of it: queues and bindings. What is there stays as it is for life."""
        self._places.forget(resource.topic)
        if resource.group is None:
            await self._places.complete_topic(resource.topic)
        else:
            await self._places.complete_group(resource.group, resource.topic)

    async def remove(self, resources: Sequence[Resource]) -> None:
        await self._inventory.remove(resources)

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await self._client.aclose()

    async def _counted(self, resource: Resource) -> Resource:
        """With what members of this instance have in hand."""
        if resource.group is None:
            return resource
        progress = await self._progress(resource.group, resource.topic)
        return msgspec.structs.replace(resource, frames=progress.pending)

    async def _progress(self, group: str, topic: str) -> Progress:
        lanes = await self._places.lanes_of(group, topic)
        found = [await self._places.look(lane_queue(group, topic, n, lanes)) for n in range(lanes)]
        ours = [stream for stream in self._streams if stream.group == group and stream.reads(topic)]
        waiting = sum(lane.message_count or 0 for lane in found if lane is not None)
        others = any((lane.consumer_count or 0) > len(ours) for lane in found if lane is not None)
        pending = waiting + sum(stream.held(topic) for stream in ours)
        return Progress(stored=pending, pending=pending, truncated=True, uncounted=IN_OTHER_HANDS if others else "")


def version_check(version: str) -> Check:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return judged(
        "server",
        f"RabbitMQ {version}",
        wrong=numbers < LEAST,
        as_="fail",
        fix=f"needs {LEAST[0]}.{LEAST[1]} or later: upgrade the server",
    )


def as_made(name: str, drift: Sequence[Drift], *, lost: Literal["lost", "refused"]) -> Check:
    """A group keeps the lanes that it was made with: their number is no fault. `lost`: what becomes of frames where a part is
    missing."""
    wrong = [each for each in drift if each.setting != "partitions"]
    unfit = [each for each in wrong if not each.repairable and each != HIDDEN]
    missing = [each for each in wrong if each.repairable]
    if unfit:
        fix = "frames may be lost or overtake each other: delete it when it is empty, and let ensure() make it anew"
    elif missing:
        fix = f"frames may be {lost}: `posthouse topology apply` makes again what is missing"
    else:
        fix = HIDDEN.fix
    return judged(
        name,
        ", ".join(f"{each.setting}: {each.found}, not {each.wanted}" for each in wrong)
        or "durable, quorum, one active consumer, no end of deliveries",
        wrong=bool(wrong),
        as_="fail" if unfit or (missing and lost == "lost") else "warn",
        fix=fix,
    )

"""SqsBroker: topics as SNS FIFO topics, groups as SQS FIFO queues, order per key by message groups."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.admission import admit
from posthouse.brokers.sqs.admin import Inventory, called
from posthouse.brokers.sqs.checks import queue_checks, subscription_checks, topic_checks
from posthouse.brokers.sqs.client import Client, Missing
from posthouse.brokers.sqs.publishing import LARGEST, Call
from posthouse.brokers.sqs.stream import SqsStream
from posthouse.brokers.sqs.topics import FORTNIGHT, Topics
from posthouse.checks import Check, warnings
from posthouse.clock import Clock
from posthouse.errors import BrokerError, SeekUnsupported
from posthouse.survey import Resource, wanted, with_missing

OVERHEAD = 8 * 1024
"""Bytes of a message that are kept for what we add to it and for the punctuation of headers."""
DEDUP = 300.0
"""Seconds for which SNS and SQS drop a repeated id."""
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")


class SqsBroker:
    """SNS and SQS of one region. Credentials are found as the AWS tools find them.

    `account`: whose topics and queues; None asks AWS whose credentials these are. `endpoint`: of an emulator or a
    private link. `visibility`: whole seconds after which the frames of a member that fell silent go to others.
    `poll`: whole seconds that a request waits for frames, and so the longest that closing may take; at most a third of
    `visibility`. `timeout`: seconds to wait for any other answer. `driver` is passed to aiobotocore's `create_client`
    as it is.

    `Progress` is what SQS counts, which may be a minute late.
    """

    def __init__(
        self,
        region: str,
        *,
        clock: Clock,
        account: str | None = None,
        endpoint: str | None = None,
        visibility: int = 30,
        poll: int = 5,
        timeout: float = 10.0,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        poll = max(1, min(poll, visibility // 3))
        self._client = Client(region, endpoint=endpoint, timeout=timeout, poll=poll, driver=driver or {})
        self._topics = Topics(self._client, account=account, visibility=visibility)
        self._inventory = Inventory(self._client, self._topics)
        self._clock = clock
        self._visibility = visibility
        self._poll = poll
        self._streams: set[SqsStream] = set()
        self.sheet = Capabilities(
            name="sqs",
            region=region,
            durable_ack=True,
            ordered_publish=True,
            ordered_redelivery=True,
            native_dedup_s=DEDUP,
            history=False,
            seek=False,
            native_dlq=True,
            max_bytes=(LARGEST - OVERHEAD) // 4 * 3,  # bytes that are no text travel as base64
            retains_unacked=False,
            redelivery_s=float(FORTNIGHT),
        )

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read, and the queues of the groups."""
        names = {*topology.topics, *(topic for group in topology.groups.values() for topic in group)}
        await self._topics.make(sorted(names))
        for group, topics in topology.groups.items():
            for topic in topics:
                await self._topics.begin(group, topic)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """Topics side by side; see `publishing` for what happens in one."""
        if not frames:
            return []
        await self._topics.find({frame.topic for frame in frames})
        verdicts = admit(frames, self._topics.known, self.sheet.max_bytes)
        admitted: dict[str, list[int]] = defaultdict(list)
        for index, verdict in enumerate(verdicts):
            if verdict.accepted:
                admitted[frames[index].topic].append(index)
        calls = {topic: Call(self._client, self._topics.known[topic], frames, verdicts) for topic in admitted}
        stored = (call.store(admitted[topic]) for topic, call in calls.items())
        outcomes = await asyncio.gather(*stored, return_exceptions=True)
        for topic, call in calls.items():
            if call.gone:
                self._topics.known.pop(topic, None)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> SqsStream:
        """A new group begins with what is published from now on, whatever `start` says: there is no history."""
        stream = SqsStream(
            self._client,
            [await self._topics.begin(group, topic) for topic in topics],
            clock=self._clock,
            window=window,
            visibility=self._visibility,
            poll=self._poll,
            on_close=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        raise SeekUnsupported(f"SQS keeps no history of {topic!r} to go back to: replay from the archive")

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A group without a queue stands at zero."""
        return {topic: await self._progress(group, topic) for topic in topics}

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """The settings of every topic and queue that this instance has used."""
        checks: list[Check] = []
        for topic in sorted(self._topics.known):
            try:
                checks += topic_checks(topic, await self._topics.topic_attributes(topic))
            except Missing:
                checks.append(_gone(f"topic {topic}"))
        for queue in sorted(self._topics.queues.values()):
            try:
                settings = await self._topics.attributes(queue)
                subscription = await self._topics.subscription(queue)
            except Missing:
                checks.append(_gone(f"queue of {queue.group} for {queue.topic}"))
                continue
            checks += queue_checks(queue, settings, self._visibility)
            arn = await self._topics.arn(queue.topic)
            checks += subscription_checks(queue, subscription, settings.get("Policy", ""), arn)
        if not checks:
            checks.append(Check(name="aws", found=f"account {await self._topics.account()} answers"))
        self.sheet = msgspec.structs.replace(self.sheet, notes=tuple(warnings(checks)))
        return checks

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        """What the topology names is known from then on, and judged by the checks."""
        asked = wanted(topology)
        for topic, group in asked:
            self._topics.forget(topic, group)
        found = await self._inventory.found(asked)
        for resource in found:
            if resource.group is not None and (resource.topic, resource.group) in asked:
                await self._topics.remember(resource.group, resource.topic)
        return with_missing(topology, found, called)

    async def repair(self, resource: Resource) -> None:
        await self._inventory.repair(resource)

    async def remove(self, resources: Sequence[Resource]) -> None:
        """Whoever has frames in hand is seen; whoever only waits for some is not."""
        await self._inventory.remove(resources)

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await self._client.aclose()

    async def _progress(self, group: str, topic: str) -> Progress:
        left = 0
        queue = await self._topics.queue(group, topic)
        if queue is not None:
            settings = await self._topics.attributes(queue)
            left = sum(int(settings.get(count, 0)) for count in COUNTS)
        return Progress(stored=left, pending=left, truncated=True)


def _gone(name: str) -> Check:
    fix = "its frames are refused or lost to the group: run ensure() (start the service again)"
    return Check(name=name, found="does not exist any more", judgement="fail", fix=fix)

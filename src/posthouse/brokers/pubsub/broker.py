"""PubSubBroker: the port on Google Pub/Sub."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
from google.api_core import exceptions as google
from google.pubsub_v1.types import (
    DeadLetterPolicy,
    ExpirationPolicy,
    PublishRequest,
    SeekRequest,
    Subscription,
    Topic,
)

from posthouse.broker import ACCEPTED, Capabilities, Frame, Progress, Start, Stream, Topology, Verdict
from posthouse.brokers.admission import admit, frame_size
from posthouse.brokers.pubsub.admin import Inventory, called
from posthouse.brokers.pubsub.checks import checks_of, endpoint_check
from posthouse.brokers.pubsub.client import Client, mapped, words
from posthouse.brokers.pubsub.messages import message_of, misfit
from posthouse.brokers.pubsub.permitted import permitted
from posthouse.brokers.pubsub.push import Push, SilentStream, config_of, mismatch
from posthouse.brokers.pubsub.stream import Lane, PubSubStream
from posthouse.checks import Check, refusals, warnings
from posthouse.clock import Clock
from posthouse.errors import BrokerError
from posthouse.survey import Age, Resource, Wish, with_missing

T = TypeVar("T")
LARGEST = 8 * 1024 * 1024
"""Of one frame and of one request; the service takes 10 MB with everything around it."""
TOGETHER = 1000
"""Messages in one request, by the service's limit."""
AT_ONCE = 100
"""Requests on their way at a time, which is what one connection carries."""
ATTEMPTS = 100
"""The most that a dead-letter policy may allow."""
BACKLOG = (
    "they may wait in the subscription, which Pub/Sub does not tell (see num_undelivered_messages in Cloud Monitoring)"
)
BEHIND = Verdict(False, "an earlier frame of this key was refused in the same call")
REFUSALS = (google.NotFound, google.Forbidden, google.BadRequest, google.TooManyRequests)
"""Answers which say that nothing of the request was stored."""

PublishPb = PublishRequest.pb()


class Everywhere:
    """Whether a topic exists is for the service to say, frame by frame."""

    def __contains__(self, name: object) -> bool:
        return True


class PubSubBroker:
    """One topic per topic; `<group>.<topic>.sub` is the ordered subscription of a group.

    `lease` is the ack deadline in seconds (10 to 600), renewed while frames are in hand: a member that dies is replaced
    after at most that. `retention` is how long a subscription keeps frames, read or not, in seconds. `dead_letters`
    names the topic that makes the service count deliveries. `endpoint` is a regional endpoint, `emulator` a host and
    port without TLS; `driver` goes to Google's transports as it is. With `push` the groups of this instance are pushed
    to an HTTPS endpoint (`posthouse.edges.push`), and `subscribe` gives a stream on which nothing comes.
    """

    def __init__(
        self,
        project: str,
        *,
        clock: Clock,
        lease: int = 60,
        retention: float = 7 * 86_400.0,
        dead_letters: str = "posthouse.lost",
        endpoint: str | None = None,
        emulator: str | None = None,
        timeout: float = 10.0,
        push: Push | None = None,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        self.sheet = Capabilities(
            name="pubsub",
            durable_ack=emulator is None,
            ordered_publish=True,
            ordered_redelivery=True,
            history=False,
            seek=True,
            native_dlq=True,
            max_bytes=LARGEST,
            header_limit=99,
            retains_unacked=False,
            redelivery_s=retention,
            announces=True,
        )
        self._client = Client(project, emulator=emulator, endpoint=endpoint, timeout=timeout, driver=driver)
        self._inventory = Inventory(self._client, lease=lease, retention=retention, push=push)
        self._clock = clock
        self._lease = lease
        self._retention = retention
        self._dead_letters = dead_letters
        self._push = push
        self._streams: list[PubSubStream] = []
        self._silent: list[SilentStream] = []

    async def ensure(self, topology: Topology) -> None:
        groups = [(group, topic) for group, topics in topology.groups.items() for topic in topics]
        await _all(self._make_topic(topic) for topic in {*topology.topics, *(topic for _, topic in groups)})
        await _all(self._make_subscription(group, topic) for group, topic in groups)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """All frames of a key go in one request, which is stored whole or not at all; keys go side by side."""
        verdicts = _admitted(frames)
        keys: dict[tuple[str, str | None], list[int]] = defaultdict(list)
        for index, frame in enumerate(frames):
            if verdicts[index].accepted:
                keys[frame.topic, frame.key].append(index)
        free = asyncio.Semaphore(AT_ONCE)
        await _all(self._publish_key(frames, indices, verdicts, free) for indices in keys.values())
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        """A new group begins now, whatever `start` says: a subscription gets what is published after it was made."""
        lanes = await _all(self._join(group, topic) for topic in topics)
        if self._push is not None:
            silent = SilentStream(self._clock)
            self._silent.append(silent)
            return silent
        stream = PubSubStream(
            self._client, lanes, clock=self._clock, window=window, lease=self._lease, on_close=self._streams.remove
        )
        self._streams.append(stream)
        stream.open()
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """A position is the time of publication in microseconds since 1970."""
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        if position is not None and not isinstance(position, int):
            raise BrokerError(f"position {position!r} is not one of Pub/Sub: it takes whole microseconds since 1970")
        micros = position if position is not None else round((time or 0.0) * 1_000_000)
        seconds, rest = divmod(micros, 1_000_000)
        target = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
        subscription = self._subscription(group, topic)
        with mapped(f"seeking {subscription}"):
            request = SeekRequest(subscription=subscription, time=target)
            await self._client.subscriber.seek(request, retry=None, timeout=self._client.timeout)
        for lane in self._lanes(subscription):
            lane.forget()

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """Pub/Sub tells its clients no backlog: this counts what this instance has in hand. The whole is the metric
        `subscription/num_undelivered_messages` of Cloud Monitoring."""
        found = {}
        for topic in topics:
            held = sum(len(lane.held) for lane in self._lanes(self._subscription(group, topic)))
            found[topic] = Progress(stored=held, pending=held, truncated=True, uncounted=BACKLOG)
        return found

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """Of all `.sub` subscriptions of the project. None of them stops a service that may have nothing to do with
        it: `subscribe` refuses those that its group cannot work with."""
        found = [endpoint_check(self._client.endpoint, self._client.emulator)]
        with mapped("looking at the subscriptions"):
            pages = await self._client.subscriber.list_subscriptions(
                project=f"projects/{self._client.project}", retry=None, timeout=self._client.timeout
            )
            async for subscription in pages:
                if subscription.name.endswith(".sub"):
                    found += [_weakened(check) for check in checks_of(subscription)]
        self.sheet = msgspec.structs.replace(self.sheet, notes=tuple(warnings(found)))
        return found

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        return dict.fromkeys(topics, Age(self._retention, False, False))

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        """An emulator knows nobody's rights: None."""
        return await permitted(self._client, wishes)

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        return with_missing(topology, await self._inventory.found(), called)

    async def repair(self, resource: Resource) -> None:
        await self._inventory.repair(resource)

    async def remove(self, resources: Sequence[Resource]) -> None:
        await self._inventory.remove(resources)

    async def aclose(self) -> None:
        streams: list[Stream] = [*self._streams, *self._silent]
        await asyncio.gather(*(stream.aclose() for stream in streams))
        await self._client.aclose()

    # Making resources

    async def _make_topic(self, name: str) -> None:
        with mapped(f"making topic {name!r}"), contextlib.suppress(google.AlreadyExists):
            request = Topic(name=self._client.topic(name))
            try:
                await self._client.publisher.create_topic(request, retry=None, timeout=self._client.timeout)
            except google.Forbidden as error:
                await self._find_topic(name, error)

    async def _find_topic(self, name: str, refusal: google.Forbidden) -> None:
        """Who may not make topics may work with those that somebody else has made."""
        try:
            await self._client.publisher.get_topic(
                topic=self._client.topic(name), retry=None, timeout=self._client.timeout
            )
        except (google.NotFound, google.Forbidden) as error:
            missing = isinstance(error, google.NotFound)
            raise BrokerError(
                f"this account may not make topic {name!r} ({words(refusal)}), and "
                + ("there is none: make it beforehand" if missing else "may not see it: grant it pubsub.viewer on it")
            ) from error

    async def _join(self, group: str, topic: str) -> Lane:
        """A group's place in a topic, made when it is missing and refused when it cannot keep the promise."""
        there = await self._make_subscription(group, topic)
        if there is not None and (why := refusals(checks_of(there))):
            raise BrokerError(" ".join(why))
        if there is not None and (other := mismatch(there, self._push)):
            raise BrokerError(other)
        return Lane(self._subscription(group, topic), topic)

    async def _make_subscription(self, group: str, topic: str) -> Subscription | None:
        """What is there already, or None when it was made."""
        name = self._subscription(group, topic)
        with mapped(f"looking for {name}"), contextlib.suppress(google.NotFound):
            return await self._client.subscriber.get_subscription(
                subscription=name, retry=None, timeout=self._client.timeout
            )
        with mapped(f"making {name}"), contextlib.suppress(google.AlreadyExists):
            try:
                await self._create(name, topic)
            except google.NotFound:
                await self._make_lost_and_found()
                try:
                    await self._create(name, topic)
                except google.NotFound as error:
                    raise BrokerError(f"topic {topic!r} does not exist: make it with ensure()") from error
        return None

    async def _create(self, name: str, topic: str) -> None:
        subscription = Subscription(
            name=name,
            topic=self._client.topic(topic),
            ack_deadline_seconds=self._lease,
            enable_message_ordering=True,
            retain_acked_messages=True,
            message_retention_duration=timedelta(seconds=self._retention),
            expiration_policy=ExpirationPolicy(),  # without a time: a group that sleeps for a month is not deleted
            dead_letter_policy=DeadLetterPolicy(
                dead_letter_topic=self._client.topic(self._dead_letters), max_delivery_attempts=ATTEMPTS
            ),
            push_config=config_of(self._push),
        )
        await self._client.subscriber.create_subscription(subscription, retry=None, timeout=self._client.timeout)

    async def _make_lost_and_found(self) -> None:
        """Deliveries are counted only for a subscription with a dead-letter topic; that needs a subscription, or what
        reaches it is lost."""
        await self._make_topic(self._dead_letters)
        with contextlib.suppress(google.AlreadyExists):
            subscription = Subscription(
                name=self._client.subscription(self._dead_letters),
                topic=self._client.topic(self._dead_letters),
                expiration_policy=ExpirationPolicy(),
                ack_deadline_seconds=60,
            )
            await self._client.subscriber.create_subscription(subscription, retry=None, timeout=self._client.timeout)

    def _subscription(self, group: str, topic: str) -> str:
        return self._client.subscription(f"{group}.{topic}.sub")

    def _lanes(self, subscription: str) -> Iterator[Lane]:
        return (lane for stream in self._streams for lane in stream.lanes if lane.subscription == subscription)

    # Publishing

    async def _publish_key(
        self, frames: Sequence[Frame], indices: Sequence[int], verdicts: list[Verdict], free: asyncio.Semaphore
    ) -> None:
        """One request after the other; the first that is refused refuses the rest of its key."""
        topic, refusal = frames[indices[0]].topic, ACCEPTED
        for some in _requests(frames, indices):
            if refusal.accepted:
                async with free:
                    refusal = await self._store(topic, [frames[index] for index in some])
            elif frames[some[0]].key is not None:
                refusal = BEHIND
            for index in some:
                verdicts[index] = refusal

    async def _store(self, topic: str, frames: Sequence[Frame]) -> Verdict:
        request = PublishPb(topic=self._client.topic(topic), messages=[message_of(frame) for frame in frames])
        with mapped(f"publishing to {topic!r}"):
            try:
                await self._client.publisher.publish(
                    PublishRequest.wrap(request), retry=None, timeout=self._client.timeout
                )
            except google.NotFound:
                return Verdict(False, f"topic {topic!r} does not exist: make it with ensure()")
            except REFUSALS as error:
                # Of several frames nobody says which one is to blame: none of them is given up for it.
                final = isinstance(error, google.InvalidArgument) and len(frames) == 1
                return Verdict(False, f"Pub/Sub refused it: {words(error)}", final=final)
        return ACCEPTED


def _weakened(check: Check) -> Check:
    return msgspec.structs.replace(check, judgement="warn") if check.judgement == "fail" else check


def _admitted(frames: Sequence[Frame]) -> list[Verdict]:
    """First verdicts: what can never be stored, and what is behind that in its key."""
    verdicts = admit(frames, Everywhere(), LARGEST)
    blocked: set[tuple[str, str | None]] = set()
    for index, frame in enumerate(frames):
        place = (frame.topic, frame.key)
        if not verdicts[index].accepted:
            continue
        if place in blocked:
            verdicts[index] = BEHIND
        elif why := misfit(frame):
            verdicts[index] = Verdict(False, why, final=True)
            if frame.key is not None:
                blocked.add(place)
    return verdicts


def _requests(frames: Sequence[Frame], indices: Sequence[int]) -> Iterator[list[int]]:
    """Runs that fit into one request."""
    some: list[int] = []
    size = 0
    for index in indices:
        bytes_ = frame_size(frames[index])
        if some and (len(some) == TOGETHER or size + bytes_ > LARGEST):
            yield some
            some, size = [], 0
        some.append(index)
        size += bytes_
    yield some


async def _all(steps: Iterator[Awaitable[T]]) -> list[T]:
    """Side by side; every one ends before the first error is raised."""
    results: list[T] = []
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results

"""Publishing: a channel per topic, and of each key one frame on its way at a time.

RabbitMQ may refuse a frame and take the next one. So the frames of a key follow each other's confirmations, and the
keys go side by side. Whatever closes a channel closes that of one topic.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from aiormq import Channel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.admission import BEHIND, Admission, admit
from posthouse.brokers.rabbitmq.client import Client, Wrong, mapped
from posthouse.brokers.rabbitmq.messages import misfit, properties_of, route_of, too_long
from posthouse.brokers.rabbitmq.topics import Topics
from posthouse.clock import Clock

_too_large = re.compile(r"larger than.*?(\d+)\D*$")


class Publisher:
    """`room`: the largest frame, as far as the server has told."""

    def __init__(self, client: Client, places: Topics, clock: Clock, room: int) -> None:
        self._client = client
        self._places = places
        self._clock = clock
        self.room = room
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def publish(self, frames: Sequence[Frame]) -> list[Verdict]:
        """Where one of them ended the connection they are said one by one: it is refused for good, the others are stored,
        some of them again."""
        try:
            return await self._publish(frames)
        except Wrong as wrong:
            if len(frames) == 1:
                return [Verdict(False, f"it ends the connection: {wrong}", final=True)]
        admission = Admission(frames, self._places.topics, self.room)
        for number, frame in enumerate(frames):
            if not admission.is_behind(number):
                (verdict,) = await self.publish([frame])
                if not verdict.accepted:
                    admission.refuse(number, verdict)
        return admission.verdicts

    async def _publish(self, frames: Sequence[Frame]) -> list[Verdict]:
        for topic in {frame.topic for frame in frames}:
            await self._places.has_topic(topic)
        verdicts = admit(frames, self._places.topics, self.room)
        at = self._clock.now()
        most = await self._client.largest() if any(verdict.accepted for verdict in verdicts) else 0
        chains = self._chains(frames, verdicts, lambda frame: misfit(frame) or too_long(frame, at, most))
        channels = {topic: await self._channel(topic) for topic in {topic for topic, _ in chains}}
        outcomes = await asyncio.gather(
            *(self._follow(channels[topic], frames, numbers, verdicts, at) for (topic, _), numbers in chains.items()),
            return_exceptions=True,
        )
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            raise next((failure for failure in failures if isinstance(failure, Wrong)), failures[0])
        return verdicts

    def _chains(
        self, frames: Sequence[Frame], verdicts: list[Verdict], misfit: Callable[[Frame], str]
    ) -> dict[tuple[str, str], list[int]]:
        """The numbers of the admitted frames, by topic and key; those without a key are chains of one."""
        chains: dict[tuple[str, str], list[int]] = {}
        blocked: set[tuple[str, str]] = set()
        for number, frame in enumerate(frames):
            if not verdicts[number].accepted:
                continue
            place = (frame.topic, frame.id if frame.key is None else f"key:{frame.key}")
            if place in blocked:
                verdicts[number] = BEHIND
            elif reason := misfit(frame):
                verdicts[number] = Verdict(False, reason, final=True)
                if frame.key is not None:
                    blocked.add(place)
            else:
                chains.setdefault(place, []).append(number)
        return chains

    async def _follow(
        self, channel: Channel, frames: Sequence[Frame], numbers: list[int], verdicts: list[Verdict], at: float
    ) -> None:
        """One after the other, until one is refused."""
        for done, number in enumerate(numbers, 1):
            verdicts[number] = await self._store(channel, frames[number], at)
            if not verdicts[number].accepted:
                for later in numbers[done:]:
                    verdicts[later] = BEHIND
                return

    async def _store(self, channel: Channel, frame: Frame, at: float) -> Verdict:
        with mapped("publishing"):
            try:
                await channel.basic_publish(
                    frame.body,
                    exchange=frame.topic,
                    routing_key=route_of(frame),
                    properties=properties_of(frame, at),
                    mandatory=True,
                    timeout=self._client.timeout,
                    wait=False,
                )
            except PublishError:
                return Verdict(False, f"no queue takes frames of {frame.topic!r}: make it with ensure()")
            except DeliveryError as error:
                return Verdict(False, f"RabbitMQ refused it: {error}; a lane may be full, or without a majority")
            except ChannelNotFoundEntity as error:
                self._places.forget(frame.topic)
                return Verdict(False, f"topic {frame.topic!r} does not exist: {error}")
            except ChannelAccessRefused as error:
                return Verdict(False, f"RabbitMQ does not let us: {error}")
            except ChannelPreconditionFailed as error:
                self._learn(str(error))
                raise
        return ACCEPTED

    def _learn(self, reason: str) -> None:
        """A frame too large for the server ends its channel. Said again it is refused before it is sent."""
        found = _too_large.search(reason)
        if found is not None:
            self.room = min(self.room, int(found[1]))

    async def _channel(self, topic: str) -> Channel:
        async with self._opening.setdefault(topic, asyncio.Lock()):
            channel = self._channels.get(topic)
            if channel is None or channel.is_closed or channel.connection.is_closed:
                channel = self._channels[topic] = await self._client.channel(confirms=True)
            return channel

"""Storing frames: one script for many, which stores the entries of a lane in order up to the first refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from posthouse.broker import Frame, Verdict
from posthouse.brokers.admission import Admission
from posthouse.brokers.redis.client import Client, Refused, Value, is_passing
from posthouse.brokers.redis.entries import fields_of, lane_number, misfit
from posthouse.brokers.redis.scripts import ADD
from posthouse.brokers.redis.topics import Topics
from posthouse.errors import BrokerUnavailable

MANY = 1000
"""Frames of one script: the server does nothing else meanwhile."""
BYTES = 4 * 1024 * 1024


class Call:
    """One call of `publish`: what became of each frame."""

    def __init__(self, client: Client, topics: Topics, frames: Sequence[Frame], limit: int) -> None:
        self._client = client
        self._topics = topics
        self._frames = frames
        self._admission = Admission(frames, topics.known, limit)
        self.verdicts = self._admission.verdicts

    async def store(self) -> None:
        """Each topic for itself, all at the same time."""
        stored = (self._store(*topic) for topic in self._admission.by_topic(self._misfit).items())
        for outcome in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _misfit(self, index: int) -> str:
        frame = self._frames[index]
        return misfit(frame) if frame.headers else ""

    async def _store(self, topic: str, indices: list[int]) -> None:
        partitions, lanes = self._topics.known[topic], self._topics.lanes(topic)
        for sent in self._admission.chunks(indices, most=MANY, most_bytes=BYTES):
            arguments: list[Value] = []
            for index in sent:
                frame = self._frames[index]
                fields = fields_of(frame)
                arguments += (lane_number(frame, partitions) + 1, len(fields), *fields)
            try:
                refused = await self._client.run(ADD, lanes, arguments)
            except Refused as error:
                refused = [(number, str(error).encode()) for number in range(len(sent))]
            for number, reason in refused:
                self._admission.refuse(sent[number], self._verdict(topic, reason.decode(errors="replace")))

    def _verdict(self, topic: str, reason: str) -> Verdict:
        if reason == "gone":
            self._topics.forget(topic)
            return Verdict(False, f"topic {topic!r} does not exist any more: make it with ensure()")
        if is_passing(reason):
            raise BrokerUnavailable(f"Redis, publishing: {reason}")
        return Verdict(False, f"Redis refused it: {reason}")

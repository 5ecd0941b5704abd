"""Storing frames: one script for many, which stores the entries of a lane in order up to the first refusal."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence

from posthouse.broker import Frame, Verdict
from posthouse.brokers.admission import admit
from posthouse.brokers.redis.entries import fields_of, lane_number, misfit
from posthouse.brokers.redis.scripts import ADD
from posthouse.brokers.redis.topics import Topics
from posthouse.brokers.redis.wire import Refused, Value, Wire, is_passing
from posthouse.errors import BrokerUnavailable

MANY = 1000
"""Frames of one script: the server does nothing else meanwhile."""
BYTES = 4 * 1024 * 1024
BEHIND = Verdict(False, "an earlier frame of this key was refused in the same call")


class Call:
    """One call of `publish`: what became of each frame."""

    def __init__(self, wire: Wire, topics: Topics, frames: Sequence[Frame], limit: int) -> None:
        self._wire = wire
        self._topics = topics
        self._frames = frames
        self.verdicts = admit(frames, topics.known, limit)
        self._blocked: set[tuple[str, str | None]] = set()

    async def store(self) -> None:
        """Each topic for itself, all at the same time."""
        topics: dict[str, list[int]] = defaultdict(list)
        for index, frame in enumerate(self._frames):
            if self._fits(index, frame):
                topics[frame.topic].append(index)
        stored = (self._store(topic, indices) for topic, indices in topics.items())
        for outcome in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _fits(self, index: int, frame: Frame) -> bool:
        if not self.verdicts[index].accepted:
            self._refuse(index, self.verdicts[index])
            return False
        if self._is_behind(index):
            return False
        reason = misfit(frame) if frame.headers else ""
        if reason:
            self._refuse(index, Verdict(False, reason, final=True))
        return not reason

    async def _store(self, topic: str, indices: list[int]) -> None:
        partitions, lanes = self._topics.known[topic], self._topics.lanes(topic)
        for chunk in self._chunks(indices):
            sent = [index for index in chunk if not self._is_behind(index)]
            arguments: list[Value] = []
            for index in sent:
                frame = self._frames[index]
                fields = fields_of(frame)
                arguments += (lane_number(frame, partitions) + 1, len(fields), *fields)
            try:
                refused = await self._wire.run(ADD, lanes, arguments)
            except Refused as error:
                refused = [(number, str(error).encode()) for number in range(len(sent))]
            for number, reason in refused:
                self._refuse(sent[number], self._verdict(topic, reason.decode(errors="replace")))

    def _chunks(self, indices: list[int]) -> Iterator[list[int]]:
        chunk: list[int] = []
        size = 0
        for index in indices:
            bytes_ = len(self._frames[index].body)
            if chunk and (len(chunk) == MANY or size + bytes_ > BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append(index)
            size += bytes_
        if chunk:
            yield chunk

    def _is_behind(self, index: int) -> bool:
        frame = self._frames[index]
        behind = bool(self._blocked) and (frame.topic, frame.key) in self._blocked
        if behind:
            self.verdicts[index] = BEHIND
        return behind

    def _refuse(self, index: int, verdict: Verdict) -> None:
        frame = self._frames[index]
        self.verdicts[index] = verdict
        if frame.key is not None:
            self._blocked.add((frame.topic, frame.key))

    def _verdict(self, topic: str, reason: str) -> Verdict:
        if reason == "gone":
            self._topics.forget(topic)
            return Verdict(False, f"topic {topic!r} does not exist any more: make it with ensure()")
        if is_passing(reason):
            raise BrokerUnavailable(f"Redis, publishing: {reason}")
        return Verdict(False, f"Redis refused it: {reason}")

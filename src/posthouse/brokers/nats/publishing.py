"""Storing frames: a whole batch at once where the server can, else one of each key at a time.

Messages sent behind each other are stored in their order, but when one is refused (a full stream, a new leader) the
next may be taken: it would overtake. So nothing of a key is sent before its elder was stored, unless all of them are
stored together or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from posthouse.broker import Frame, Verdict
from posthouse.brokers.admission import Admission
from posthouse.brokers.nats.client import NOBODY, Client, Message, Refusal
from posthouse.brokers.nats.messages import headers_of, misfit, stream_of, subject_of, wire_size
from posthouse.brokers.nats.topics import Topic, Topics

TOGETHER = 1000
"""Messages that a server takes in one batch."""
TURNS = 3
"""So many frames of one key go one after the other: a batch costs the server about 1.6 times as much work."""
BYTES = 32 * 1024 * 1024
"""In one batch: it waits in the server's memory until it is complete."""
CODE_TOO_LARGE = 10054
FEW = 50
"""Headers that are small beside half a message."""


class Call:
    """One call of `publish`: what is sent for each frame, and what became of it."""

    def __init__(self, client: Client, topics: Topics, frames: Sequence[Frame], limit: int) -> None:
        self._client = client
        self._topics = topics
        self._frames = frames
        self._admission = Admission(frames, topics.known, limit)
        self.verdicts = self._admission.verdicts
        self._messages: dict[int, Message] = {}

    async def store(self) -> None:
        """Each topic for itself, all at the same time."""
        topics = self._admission.by_topic(self._write)
        stored = (self._store(self._topics.known[topic], indices) for topic, indices in topics.items())
        for outcome in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _write(self, index: int) -> str:
        """Its message; or, in words, why it can have none."""
        frame = self._frames[index]
        topic, headers = self._topics.known[frame.topic], headers_of(frame)
        reason = misfit(frame) or self._excess(topic, headers, frame.body)
        if not reason:
            self._messages[index] = Message(subject_of(frame, topic.partitions), frame.body, headers)
        return reason

    def _excess(self, topic: Topic, headers: dict[str, str], body: bytes) -> str:
        """What `admit` cannot know: punctuation, our own headers, and a limit of this stream's own."""
        if len(headers) < FEW and len(body) < topic.max_bytes // 2:
            return ""
        size = wire_size(headers, body)
        return (
            f"the frame is {size:,} bytes on the wire, the stream takes {topic.max_bytes:,}"
            if size > topic.max_bytes
            else ""
        )

    async def _store(self, topic: Topic, indices: list[int]) -> None:
        for sent in self._admission.chunks(indices, most=TOGETHER, most_bytes=BYTES):
            if topic.together and self._turns(sent) > TURNS:
                messages = [self._messages[index] for index in sent]
                answer = await self._client.store_together(stream_of(topic.name), messages)
                if answer.error is None:
                    continue
            await self._store_in_turns(sent)

    def _turns(self, indices: list[int]) -> int:
        """How often the commonest key is there."""
        keys = Counter(key for index in indices if (key := self._frames[index].key) is not None)
        return max(keys.values(), default=1)

    async def _store_in_turns(self, left: list[int]) -> None:
        """The first of each key, then the second … so that each waits for its elder."""
        while left:
            now = self._admission.turn(left)
            answers = await self._client.store([self._messages[index] for index in now])
            for index, answer in zip(now, answers, strict=True):
                if answer.error is not None:
                    self._admission.refuse(index, self._verdict(self._frames[index].topic, answer.error))
                elif answer.stream != stream_of(self._frames[index].topic):
                    self._admission.refuse(index, Verdict(False, f"the stream {answer.stream} took it: who made it?"))
            sent = set(now)
            left = self._admission.ahead([index for index in left if index not in sent])

    def _verdict(self, topic: str, refusal: Refusal) -> Verdict:
        if refusal is NOBODY:
            self._topics.forget(topic)
            return Verdict(False, f"topic {topic!r} does not exist any more: make it with ensure()")
        return Verdict(False, f"NATS refused it: {refusal.description}", final=refusal.err_code == CODE_TOO_LARGE)

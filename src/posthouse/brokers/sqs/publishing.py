"""Storing frames: batches of ten side by side, and nothing of a key before its elder was stored.

SNS answers for each entry of a batch, and may take the second of a key when it did not take the first. So a batch holds
one frame of each key, and the next one of a key goes with a later batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from posthouse.broker import Frame, Verdict
from posthouse.brokers.admission import BEHIND
from posthouse.brokers.sqs.client import Client, Missing, Refused
from posthouse.brokers.sqs.messages import Letter, letter_of

LARGEST = 256 * 1024
"""Bytes of a message, and of all messages of a batch together."""
TOGETHER = 10
SIDE_BY_SIDE = 8
"""Batches of one topic on their way at the same time."""


class Failure(msgspec.Struct, frozen=True):
    """Of one entry of a batch. `senders_fault`: the same entry will fail again."""

    id: str = msgspec.field(name="Id")
    code: str = msgspec.field(name="Code", default="")
    message: str = msgspec.field(name="Message", default="")
    senders_fault: bool = msgspec.field(name="SenderFault", default=False)


class Success(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="Id")


class Outcome(msgspec.Struct, frozen=True):
    """What PublishBatch answers: one line for each entry."""

    stored: list[Success] = msgspec.field(name="Successful", default_factory=list)
    failed: list[Failure] = msgspec.field(name="Failed", default_factory=list)


class Call:
    """The frames of one topic in one call of `publish`. `verdicts` is the whole call's, and is filled in."""

    def __init__(self, client: Client, arn: str, frames: Sequence[Frame], verdicts: list[Verdict]) -> None:
        self._client = client
        self._arn = arn
        self._frames = frames
        self._verdicts = verdicts
        self._letters: dict[int, Letter] = {}
        self._ready: deque[deque[int]] = deque()
        self.gone = False
        """Whether the topic turned out not to exist any more."""

    async def store(self, indices: Iterable[int]) -> None:
        """Raises BrokerUnavailable when it is not known what became of some frames; no request is left on its way."""
        lines: dict[object, deque[int]] = {}
        for index in indices:
            frame = self._frames[index]
            lines.setdefault(index if frame.key is None else frame.key, deque()).append(index)
        for line in lines.values():
            self._queue(line)
        workers = min(SIDE_BY_SIDE, -(-len(self._ready) // TOGETHER))
        for outcome in await asyncio.gather(*(self._work() for _ in range(workers)), return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._ready.clear()
                raise outcome

    def _queue(self, line: deque[int]) -> None:
        """The first of a key waits for its batch; one that can never be stored ends its key."""
        if not line:
            return
        letter = letter_of(self._frames[line[0]])
        if letter.size > LARGEST:
            reason = f"the frame is {letter.size:,} bytes on the wire, SNS takes {LARGEST:,}"
            self._refuse(line, Verdict(False, reason, final=True))
        else:
            self._letters[line[0]] = letter
            self._ready.append(line)

    async def _work(self) -> None:
        while batch := self._batch():
            try:
                failed = await self._send(batch)
            except Refused as error:
                self.gone = self.gone or isinstance(error, Missing)
                failed = dict.fromkeys((line[0] for line in batch), str(error))
            except BaseException:
                self._ready.clear()  # nothing more is sent when nothing is known
                raise
            for line in batch:
                if line[0] in failed:
                    self._refuse(line, Verdict(False, failed[line[0]]))
                else:
                    del self._letters[line.popleft()]
                    self._queue(line)

    def _batch(self) -> list[deque[int]]:
        batch: list[deque[int]] = []
        size = 0
        while self._ready and len(batch) < TOGETHER:
            size += self._letters[self._ready[0][0]].size
            if size > LARGEST:
                break
            batch.append(self._ready.popleft())
        return batch

    async def _send(self, batch: list[deque[int]]) -> dict[int, str]:
        """What was not stored, with its reason. An entry without an answer counts as not stored."""
        entries = [{"Id": str(line[0]), **self._letters[line[0]].entry} for line in batch]
        outcome = await self._client.call(
            "sns", "publish_batch", Outcome, TopicArn=self._arn, PublishBatchRequestEntries=entries
        )
        stored = {int(success.id) for success in outcome.stored}
        failed = {int(failure.id): f"SNS refused it: {failure.code}: {failure.message}" for failure in outcome.failed}
        return {line[0]: failed.get(line[0], "SNS did not answer for it") for line in batch if line[0] not in stored}

    def _refuse(self, line: deque[int], verdict: Verdict) -> None:
        first, *later = line
        self._verdicts[first] = verdict
        for index in later:
            self._verdicts[index] = BEHIND

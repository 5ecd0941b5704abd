"""Storing frames: all of a call behind each other, by one idempotent producer that stops at the first gap.

Kafka stores what a producer sends to a partition in order, and a server takes nothing behind a batch that it refused. The
client would then number its messages anew and go on behind the gap; with its gapless guarantee it dies instead. What it had
not confirmed is unknown then, and goes out again, in order, by a new producer, behind nothing that was refused.

That a server takes nothing behind a refusal is true only where it knows the producer: the first batch that it sees in a
partition may have any number. So the first frame of each partition goes ahead alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.admission import BEHIND
from posthouse.brokers.kafka.client import PRODUCER, Client, configured, words
from posthouse.brokers.kafka.committed_offsets import Spot
from posthouse.brokers.kafka.records import Letter, letter_of, wire_size
from posthouse.brokers.kafka.topics import Topic, Topics
from posthouse.errors import BrokerUnavailable
from posthouse.pulse import alive

OF_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
"""Refusals of everything that goes to a topic."""
OF_FRAME = (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION)
"""Refusals of a frame."""
FORBIDDEN = KafkaError.TOPIC_AUTHORIZATION_FAILED
ROUNDS = 5
"""The most attempts of a call while a topic's limit shrinks."""
LARGEST = 1_000_000_000
"""The client's own limit is out of the way: each topic has its own."""
BATCH = 1_000_000
FEW = 50
"""Headers that are small beside half a frame."""
PAUSE = 0.005
"""Seconds, while the client's memory is full."""
LINGER = 50
"""Milliseconds; a flush ends it, and each call ends with one. So a call is sent in as few batches as can be."""

FORGETS = 3600.0
"""Seconds after which a partition counts as new again; a server remembers a producer for a day by default."""

Report = Callable[[KafkaError | None, Message], None]


class Outlet:
    """One producer, and the thread in which its reports arrive."""

    def __init__(self, client: Client, batch: int) -> None:
        self.batch = batch
        own = {"message.max.bytes": LARGEST, "batch.size": batch, "linger.ms": client.driver.get("linger.ms", LINGER)}
        with configured():
            self._producer = Producer(client.config({**own, **PRODUCER}))
        self._work = threading.Event()
        self._known: dict[Spot, float] = {}
        """Partitions whose server has stored something of this producer, and when."""
        self.closed = False
        self.failure = ""
        """Why the thread ended by itself; nothing is reported any more then."""
        self._thread = threading.Thread(target=self._run, name="posthouse-kafka-producer", daemon=True)
        self._thread.start()

    def send(self, frame: Frame, letter: Letter, report: Report) -> None:
        """Raises BufferError when the client's memory is full, KafkaException when the producer is dead."""
        headers, key, partition, _ = letter
        self._producer.produce(
            frame.topic, frame.body, key=key, partition=partition, headers=headers, on_delivery=report
        )

    def is_known(self, spot: Spot) -> bool:
        """Whether the server of a partition has a number of this producer to compare with. It forgets after a day."""
        return time.monotonic() - self._known.get(spot, -FORGETS) < FORGETS

    def becomes_known(self, spots: Iterable[Spot]) -> None:
        self._known.update(dict.fromkeys(spots, time.monotonic()))

    def flush(self) -> None:
        self._work.set()

    def give_up(self) -> None:
        """What is unconfirmed is reported as such, now; whether it was stored is not known."""
        with contextlib.suppress(KafkaException):
            self._producer.purge(blocking=False)
        self._work.set()

    def close(self) -> None:
        self.closed = True
        self.give_up()

    def _run(self) -> None:
        try:
            while not self.closed:
                self._work.wait()
                self._work.clear()
                while len(self._producer) and not self.closed:
                    self._flush(0.1)
            with contextlib.suppress(KafkaException):
                self._producer.purge()
            self._flush(1.0)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _flush(self, seconds: float) -> None:
        """A fatal error is raised here, and its report comes to whoever sent the frame. A report that comes in the same
        call runs while the driver has that error in its hands: Python calls this a SystemError, and the report was made."""
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.flush(seconds)


class Producing:
    """The outlet of one broker, made anew whenever it died or fell silent."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._outlet: Outlet | None = None
        self._closed = False

    async def store(self, frames: Sequence[Frame]) -> list[Verdict]:
        await self._topics.find({frame.topic for frame in frames})
        call = Call(frames, self._topics)
        if call.tight:
            await self._topics.look(call.tight)  # a limit may have been raised since it was looked at
            call = Call(frames, self._topics)
        while call.left:
            outlet = self._open()
            try:
                await call.send(outlet, self._client.timeout)
            except BaseException:
                if call.unknown:
                    self._discard(outlet)
                    self._forget(frames)  # should one of them be gone, the next call will know
                raise
            if call.unknown:
                self._discard(outlet)
                await self._topics.look(call.oversized())
                call.judge()
        return call.verdicts

    def close(self) -> None:
        self._closed = True
        if self._outlet is not None:
            self._discard(self._outlet)

    def _open(self) -> Outlet:
        """Batches must fit into the smallest topic: a server refuses a batch as a whole."""
        if self._closed:
            raise BrokerUnavailable("this broker was closed")
        wanted = int(str(self._client.driver.get("batch.size", BATCH)))
        batch = min([wanted, *(topic.max_bytes for topic in self._topics.known.values())])
        if self._outlet is not None and (batch < self._outlet.batch or self._outlet.failure):
            self._discard(self._outlet)
        if self._outlet is None:
            self._outlet = Outlet(self._client, batch)
        return self._outlet

    def _forget(self, frames: Sequence[Frame]) -> None:
        for topic in {frame.topic for frame in frames}:
            self._topics.forget(topic)

    def _discard(self, outlet: Outlet) -> None:
        outlet.close()
        if self._outlet is outlet:
            self._outlet = None


class Call:
    """One call of `publish`: what became of each frame, and which are still to be sent."""

    def __init__(self, frames: Sequence[Frame], topics: Topics) -> None:
        self._frames = frames
        self._topics = topics
        self.verdicts = [ACCEPTED] * len(frames)
        self._blocked: set[tuple[str, str]] = set()
        self._stopped: dict[str, Verdict] = {}
        """Topics that take nothing any more."""
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._sent = 0
        self._reported = 0
        """Only the outlet's thread counts here."""
        self._all_sent = False
        self._rounds = 0
        self.tight: set[str] = set()
        """Topics that are too small for a frame, as far as is known."""
        self._errors: dict[int, KafkaError] = {}
        self._letters: dict[int, Letter] = {}
        self.left = [index for index, frame in enumerate(frames) if self._fits(index, frame)]
        """Indices of frames without a verdict of the server."""

    @property
    def unknown(self) -> bool:
        """Whether the producer has something of ours that it may still store, or died of it."""
        return self._reported < self._sent or bool(self._errors)

    async def send(self, outlet: Outlet, patience: float) -> None:
        """Hand over what is left, and come back when every one was reported. Raises BrokerUnavailable when for so many
        seconds none was."""
        spots = {index: (self._frames[index].topic, self._letters[index].partition) for index in self.left}
        first = {spot: index for index, spot in reversed(spots.items()) if not outlet.is_known(spot)}
        await self._send(outlet, sorted(first.values()), patience)
        if not self._errors:
            await self._send(outlet, self.left, patience)
        outlet.becomes_known(spots.values())

    async def _send(self, outlet: Outlet, indices: Sequence[int], patience: float) -> None:
        self._done.clear()
        self._all_sent = False
        for index in indices:
            if not self._hand_over(outlet, index):
                await self._make_room(outlet, index, patience)
        self._all_sent = True
        outlet.flush()
        while self._reported < self._sent:
            if outlet.failure:
                raise BrokerUnavailable(f"Kafka, storing: the producer's thread ended: {outlet.failure}")
            if self._errors:
                outlet.give_up()  # it died of the first error, and would keep the rest to itself
            before = self._reported
            self._done.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._done.wait()
            self._expect_more_than(before, patience)
            alive()
        stored = set(indices) - self._errors.keys()
        self.left = [index for index in self.left if index not in stored]

    def oversized(self) -> set[str]:
        """Topics of which a batch was too large: their limit is not what it was."""
        too_large = KafkaError.MSG_SIZE_TOO_LARGE
        return {self._frames[index].topic for index, error in self._errors.items() if error.code() == too_large}

    def judge(self) -> None:
        """Verdicts for those that were refused and those behind them; the rest is left, to be sent again. Raises
        BrokerUnavailable when nothing is known about any."""
        errors, self._errors = self._errors, {}
        verdicts = {index: self._verdict(index, error) for index, error in sorted(errors.items())}
        refused = {index: verdict for index, verdict in verdicts.items() if verdict is not None}
        self._rounds += 1
        resized = any(error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in errors.values())
        if not refused and not (resized and self._rounds < ROUNDS):
            raise BrokerUnavailable(f"Kafka, storing: {words(errors[min(errors)])}")
        for index, verdict in refused.items():
            self._refuse(index, verdict)
        self.left = [index for index in self.left if index not in refused and not self._is_behind(index)]

    def _hand_over(self, outlet: Outlet, index: int) -> bool:
        """False when the client's memory is full."""
        try:
            outlet.send(self._frames[index], self._letters[index], partial(self._report, index))
        except BufferError:
            return False
        except KafkaException as error:
            self._errors[index] = error.args[0]
        else:
            self._sent += 1
        return True

    async def _make_room(self, outlet: Outlet, index: int, patience: float) -> None:
        before, waited = self._reported, 0.0
        while not self._hand_over(outlet, index):
            outlet.flush()
            await asyncio.sleep(PAUSE)
            waited += PAUSE
            if waited >= patience:
                self._expect_more_than(before, patience)
                alive()
                before, waited = self._reported, 0.0

    def _expect_more_than(self, before: int, patience: float) -> None:
        if self._reported == before and self._reported < self._sent:
            raise BrokerUnavailable(f"Kafka confirmed none of {self._sent - before} frames within {patience:g} s")

    def _report(self, index: int, error: KafkaError | None, _message: Message) -> None:
        """In the outlet's thread."""
        wake = error is not None and not self._errors
        if error is not None:
            self._errors[index] = error
        self._reported += 1
        if wake or (self._all_sent and self._reported == self._sent):
            with contextlib.suppress(RuntimeError):  # the loop is gone, and whoever waited with it
                self._loop.call_soon_threadsafe(self._done.set)

    def _fits(self, index: int, frame: Frame) -> bool:
        """Whether it is to be sent; if so its letter is written."""
        topic = self._topics.known.get(frame.topic)
        if topic is None:
            self._refuse(index, Verdict(False, f"topic {frame.topic!r} does not exist: make it with ensure()"))
            return False
        if self._is_behind(index):
            return False
        try:
            letter = self._letters[index] = letter_of(frame, topic.partitions)
        except ValueError as error:
            self._refuse(index, Verdict(False, str(error), final=True))
            return False
        if letter.size <= topic.max_bytes // 4 and len(letter.headers) < FEW:
            return True
        reason = excess(letter, topic)
        if reason:
            self.tight.add(frame.topic)
            self._refuse(index, Verdict(False, reason, final=True))
        return not reason

    def _is_behind(self, index: int) -> bool:
        frame = self._frames[index]
        verdict = self._stopped.get(frame.topic)
        if verdict is None and frame.key is not None and (frame.topic, frame.key) in self._blocked:
            verdict = BEHIND
        if verdict is not None:
            self.verdicts[index] = verdict
        return verdict is not None

    def _refuse(self, index: int, verdict: Verdict) -> None:
        frame = self._frames[index]
        self.verdicts[index] = verdict
        if frame.key is not None:
            self._blocked.add((frame.topic, frame.key))

    def _verdict(self, index: int, error: KafkaError) -> Verdict | None:
        """None where nothing is known of the frame, or where it was only in bad company: a server refuses whole batches."""
        frame, code = self._frames[index], error.code()
        if code in OF_TOPIC or frame.topic not in self._topics.known:
            self._topics.forget(frame.topic)
            missing = f"topic {frame.topic!r} does not exist any more: make it with ensure()"
            self._stopped[frame.topic] = Verdict(False, words(error) if code == FORBIDDEN else missing)
            return self._stopped[frame.topic]
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            reason = excess(self._letters[index], self._topics.known[frame.topic])
            return Verdict(False, reason, final=True) if reason else None
        if code in OF_FRAME:
            return Verdict(False, f"Kafka refused it: {words(error)}", final=code == KafkaError.INVALID_RECORD)
        return None


def excess(letter: Letter, topic: Topic) -> str:
    """By how much it is too large, in words; empty when it fits."""
    if letter.size > topic.room:
        return f"the frame is {letter.size:,} bytes, the topic takes {topic.room:,}"
    size = wire_size(letter)
    return (
        f"the frame is {size:,} bytes on the wire, the topic takes {topic.max_bytes:,}"
        if size > topic.max_bytes
        else ""
    )

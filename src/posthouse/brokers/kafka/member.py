"""The thread that owns a consumer: it polls, commits, and answers when partitions come and go.

A consumer of librdkafka is not to be used by two threads, and its rebalances are told from within a poll. So one thread does
all of it, and never stops polling for slow handlers: partitions with no room are paused. It does stop when the event loop
gives no more signs of life: then the group replaces this member, as it should.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from posthouse.brokers.kafka.client import words
from posthouse.brokers.kafka.committed_offsets import Claim, Spot, written
from posthouse.errors import BrokerError, BrokerUnavailable

T = TypeVar("T")
BATCH = 500
"""The most messages to take from the client at once."""
BUSY, IDLE = 0.001, 0.05
"""Seconds to wait for a message. A commit that comes meanwhile waits as long, so it is little while there is work."""
PAUSE = 0.5
"""Seconds before a client that could not be made is tried again."""
WORK = 1.0
"""Seconds since the last frame or acknowledgement that count as work."""
LOST = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._STATE,
    KafkaError._NO_OFFSET,
)
"""Answers to a commit of somebody who was replaced."""
COMPLAINTS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._ALL_BROKERS_DOWN,
)
"""What whoever waits for frames should hear."""


OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class Desk(Protocol):
    """What the thread needs of the stream; all of it runs in the event loop."""

    async def claims(self, spots: Sequence[Spot]) -> Mapping[Spot, Claim]:
        """Where the group stands there, as it is to be written by the new owner."""
        ...

    def begin(self, claims: Mapping[Spot, Claim]) -> None: ...

    async def give_back(self, spots: Sequence[Spot], patience: float) -> Mapping[Spot, Claim]:
        """Hand out no more of these, wait a little for what is in hand, and say where they stand."""
        ...

    def lose(self, spots: Sequence[Spot]) -> None: ...

    def arrived(self, messages: Sequence[Message]) -> None: ...

    def complain(self, reason: str) -> None: ...


class Gone(BrokerError):
    """Nobody does it any more: the member left, or was silent for so long that it owns nothing."""


class Again(BrokerError):
    """The group is being shared out anew: try again in a moment."""


class Broken(Exception):
    """This membership cannot be repaired: leave, and join anew."""


class Replaced(Broken):
    """Others have taken over meanwhile, as they should."""


class Member:
    """Joins when started, and joins again whenever it had to leave."""

    def __init__(
        self, make: Callable[[OnCommit], Consumer], topics: Sequence[str], desk: Desk, *, lease: float, timeout: float
    ) -> None:
        self._make = make
        self._topics = list(topics)
        self._desk = desk
        self._lease = lease
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._owned: set[Spot] = set()
        self._closing = threading.Event()
        self._ended = asyncio.Event()
        self._sign = self._polled = self._turned = time.monotonic()
        self._doubtful = False
        self._worked = 0.0
        self._failure = ""
        self._patience = lease + 4 * timeout
        """Seconds that one turn of the thread may take at the most: each of its steps ends before that."""
        self._committing: tuple[Future[set[Spot]], set[Spot]] | None = None
        self._thread = threading.Thread(target=self._run, name="posthouse-kafka-member", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def sign(self) -> None:
        """The event loop lives."""
        self._sign = time.monotonic()

    @property
    def sure(self) -> bool:
        """Whether what this member thinks it owns can be believed: it has polled lately."""
        return time.monotonic() - self._polled < self._lease / 2

    def check(self) -> None:
        """Raises BrokerUnavailable when the thread ended by itself, or does not come back from the driver."""
        if self._failure:
            raise BrokerUnavailable(f"Kafka: the thread of this member ended, subscribe again: {self._failure}")
        silent = time.monotonic() - self._turned
        if silent > self._patience:
            raise BrokerUnavailable(f"Kafka: the thread of this member has hung for {silent:.0f} s, subscribe again")

    async def commit(self, claims: Mapping[Spot, tuple[Claim, int | None]]) -> set[Spot]:
        """Write these, one call at a time; the result has those that were written, others are not ours any more. Raises
        BrokerUnavailable, and Again."""
        written: Future[set[Spot]] = Future()
        try:
            await self._do(lambda consumer: self._commit(consumer, claims, written))
            return await self._in_time(written)
        except Gone:
            return set()

    async def renew(self, spots: Sequence[Spot]) -> None:
        """Look again where the group stands in these, and go there."""
        with contextlib.suppress(Gone):
            await self._do(lambda consumer: self._renew(consumer, [spot for spot in spots if spot in self._owned]))

    def pause(self, spots: Sequence[Spot], paused: bool) -> None:
        """Soon."""

        def work(consumer: Consumer) -> None:
            parts = [TopicPartition(*spot) for spot in spots if spot in self._owned]
            with contextlib.suppress(KafkaException):
                (consumer.pause if paused else consumer.resume)(parts)

        self._tasks.put(Task(work, Future()))

    async def leave(self) -> None:
        """Others take over at once. The thread ends by itself when the servers do not answer."""
        self._closing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._ended.wait()

    async def _do(self, work: Callable[[Consumer], T]) -> T:
        if self._ended.is_set():
            raise Gone("this member has left")
        self._worked = time.monotonic()
        future: Future[T] = Future()
        self._tasks.put(Task(work, future))
        return await self._in_time(future)

    async def _in_time(self, future: Future[T]) -> T:
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka, committing: nothing was heard for {self._patience:g} s") from error

    # From here on in the thread

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._belong()
        except Exception as error:  # whoever uses the stream hears of it; where the event loop is gone, nobody does
            self._failure = f"{type(error).__name__}: {error}"
        finally:
            self._drop_tasks()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)

    def _belong(self) -> None:
        """Join, and serve until it must be done anew."""
        try:
            consumer = self._make(self._on_commit)
        except BrokerUnavailable as error:  # no memory or no socket for it: later there may be
            self._say(self._desk.complain, str(error))
            self._turned = time.monotonic()
            self._closing.wait(PAUSE)
            return
        try:
            consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._serve(consumer)
        except (Broken, KafkaException) as error:
            if not isinstance(error, Replaced):
                self._say(self._desk.complain, str(error))
            self._closing.wait(IDLE)
        finally:
            with contextlib.suppress(KafkaException, RuntimeError):
                consumer.close()
            self._forget(list(self._owned))
            self._give_up_commit()

    def _serve(self, consumer: Consumer) -> None:
        self._polled = time.monotonic()
        while not self._closing.is_set():
            self._turned = time.monotonic()
            if self._turned - self._sign > self._lease / 2:
                self._fall_silent()
                continue
            if self._doubtful or not self.sure:
                self._doubtful = False
                self._renew(consumer, list(self._owned))
            while not self._tasks.empty():
                self._tasks.get().run(consumer)
            first = consumer.poll(BUSY if time.monotonic() - self._worked < WORK else IDLE)
            self._polled = time.monotonic()
            if first is not None:
                self._hand_over([first, *consumer.consume(BATCH, 0)])

    def _fall_silent(self) -> None:
        """The event loop hangs. Poll no more, so that the group replaces us; should it wake up in time, look again."""
        if not self._doubtful:
            self._doubtful = True
            self._say(self._desk.lose, list(self._owned))
        self._drop_tasks()
        self._closing.wait(IDLE)

    def _hand_over(self, messages: Sequence[Message]) -> None:
        good = [message for message in messages if message.error() is None]
        for message in messages if len(good) < len(messages) else ():
            error = message.error()
            if error is not None and error.code() in COMPLAINTS:
                self._say(self._desk.complain, words(error))
        if good:
            self._worked = self._polled
            self._say(self._desk.arrived, good)

    def _on_assign(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        """The place is read and claimed before anything is fetched, so that whoever comes next knows how far we may get."""
        self._take_over(consumer, [(part.topic, part.partition) for part in parts])

    def _take_over(self, consumer: Consumer, spots: Sequence[Spot]) -> None:
        claims = self._ask(self._desk.claims(spots), self._lease / 2) if spots else {}
        try:
            self._write(consumer, [written(spot, claim) for spot, claim in claims.items()])
        except KafkaException as error:
            kind = Replaced if error.args[0].code() in LOST else Broken
            raise kind(words(error.args[0])) from error
        self._owned.update(claims)
        self._say(self._desk.begin, claims)
        parts = [TopicPartition(*spot, claim.cursor) for spot, claim in claims.items()]
        consumer.incremental_assign(parts)
        consumer.resume(parts)
        self._polled = time.monotonic()

    def _renew(self, consumer: Consumer, spots: Sequence[Spot]) -> None:
        if spots:
            self._forget(spots)
            consumer.incremental_unassign([TopicPartition(*spot) for spot in spots])
            self._take_over(consumer, spots)

    def _on_revoke(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        spots = [spot for part in parts if (spot := (part.topic, part.partition)) in self._owned]
        patience = 0.0 if self._closing.is_set() else self._lease / 4
        with contextlib.suppress(Broken, KafkaException):
            claims = self._ask(self._desk.give_back(spots, patience), patience + self._timeout)
            self._write(consumer, [written(spot, claim) for spot, claim in claims.items()])
        self._forget(spots)
        consumer.incremental_unassign([TopicPartition(*spot) for spot in spots])
        self._polled = time.monotonic()

    def _on_lost(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        spots = [spot for part in parts if (spot := (part.topic, part.partition)) in self._owned]
        self._forget(spots)
        consumer.incremental_unassign([TopicPartition(*spot) for spot in spots])

    def _forget(self, spots: Sequence[Spot]) -> None:
        self._owned.difference_update(spots)
        if spots:
            self._say(self._desk.lose, spots)

    def _commit(
        self, consumer: Consumer, claims: Mapping[Spot, tuple[Claim, int | None]], outcome: Future[set[Spot]]
    ) -> None:
        """Polling goes on while the server writes; its answer is told from within a poll."""
        mine = {spot: claim for spot, claim in claims.items() if spot in self._owned}
        if not mine:
            resolve(outcome, set())
            return
        if self._committing is not None:  # given up by whoever waited; its answer must not be taken for ours
            resolve(outcome, Again("an earlier commit is on its way"))
            return
        consumer.commit(offsets=[written(spot, *claim) for spot, claim in mine.items()], asynchronous=True)
        self._committing = (outcome, set(mine))

    def _on_commit(self, error: KafkaError | None, parts: list[TopicPartition]) -> None:
        if self._committing is None:
            return
        (outcome, mine), self._committing = self._committing, None
        error = error or next((part.error for part in parts if part.error is not None), None)
        if error is None:
            resolve(outcome, mine)
        elif error.code() in LOST:
            resolve(outcome, set())
        else:
            resolve(outcome, failure(error))

    def _write(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        if offsets:
            for part in consumer.commit(offsets=offsets, asynchronous=False) or ():
                if part.error is not None:
                    raise KafkaException(part.error)

    def _ask(self, question: Coroutine[Any, Any, T], patience: float) -> T:
        """Let the event loop do something, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return future.result(patience)
        except Exception as error:
            future.cancel()
            raise Broken(str(error) or type(error).__name__) from error

    def _say(self, what: Callable[[T], None], about: T) -> None:
        self._loop.call_soon_threadsafe(what, about)

    def _give_up_commit(self) -> None:
        if self._committing is not None:
            resolve(self._committing[0], Gone("this member has left"))
            self._committing = None

    def _drop_tasks(self) -> None:
        while not self._tasks.empty():
            self._tasks.get().give_up()


class Task:
    """Something for the thread to do, and who waits for it."""

    def __init__(self, work: Callable[[Consumer], object], future: Future[Any]) -> None:
        self._work = work
        self._future = future

    def run(self, consumer: Consumer) -> None:
        """Raises Broken when the membership is beyond repair."""
        try:
            resolve(self._future, self._work(consumer))
        except Broken as error:
            resolve(self._future, BrokerUnavailable(f"Kafka: {error}"))
            raise
        except KafkaException as error:
            resolve(self._future, failure(error.args[0]))
        except Exception as error:
            resolve(self._future, BrokerUnavailable(f"Kafka: {type(error).__name__}: {error}"))
            raise

    def give_up(self) -> None:
        resolve(self._future, Gone("this member has left"))


def resolve(future: Future[Any], outcome: object) -> None:
    if future.set_running_or_notify_cancel():
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def failure(error: KafkaError) -> BrokerError:
    if error.code() == KafkaError.REBALANCE_IN_PROGRESS:
        return Again(words(error))
    return BrokerUnavailable(f"Kafka, committing: {words(error)}")

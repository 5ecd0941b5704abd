"""The way to the servers: what every client is told, the admin's questions, and every foreign error mapped once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from posthouse.local.naming import client_name
from posthouse.pulse import alive

K = TypeVar("K")
T = TypeVar("T")

PRODUCER: Mapping[str, object] = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,  # a refusal stops the producer: nothing behind it overtakes
    "acks": "all",
    "max.in.flight.requests.per.connection": 5,
    "partitioner": "murmur2_random",  # as Java's clients do it
    "message.timeout.ms": 0,  # a message that timed out alone would be a gap; the whole call times out instead
}
CONSUMER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "allow.auto.create.topics": False,
}
OURS = {"group.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "bootstrap.servers"}
"""What the adapter sets from options of its own."""
FOREVER = (KafkaError._INVALID_ARG, KafkaError._NOT_IMPLEMENTED, KafkaError.INVALID_CONFIG)


class Client:
    """Knows the servers; makes the admin client at the first use."""

    def __init__(self, servers: str, *, timeout: float, driver: Mapping[str, object]) -> None:
        self.servers = servers
        self._name = client_name("broker")
        self.timeout = timeout
        self.driver = driver
        self._no_tls = ""
        """Why TLS did not come about last: the answers say only that nobody was there."""
        self._admin: AdminClient | None = None
        problems = [
            f"the driver option {name}={value!r} would break the promise: Posthouse sets {name}={fixed!r}"
            for name, fixed in {**PRODUCER, **CONSUMER}.items()
            if (value := driver.get(name, fixed)) != fixed and str(value).lower() != str(fixed).lower()
        ]
        problems += [f"the driver option {name} is set from other options of the broker" for name in OURS & {*driver}]
        if problems:
            raise ConfigurationError(*problems)

    def config(self, *own: Mapping[str, object]) -> dict[str, Any]:
        """For one client: defaults of ours, then what the user gave, then what must be so."""
        milliseconds = int(self.timeout * 2000)
        config: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "client.id": self._name,
            "socket.timeout.ms": max(1000, milliseconds),
            "socket.keepalive.enable": True,
            "log_level": 3,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
            "error_cb": self._on_error,
        }
        for part in (self.driver, *own):
            config.update(part)
        return config

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            with configured():
                self._admin = AdminClient(self.config())
        return self._admin

    async def ask(
        self, doing: str, question: Callable[[AdminClient, float], Mapping[K, Future[T]]]
    ) -> dict[K, T | KafkaError]:
        """The answer to each part of a question to the admin client, or why the server refused it. Servers that are busy
        with themselves are asked again until the time is up: a topic that was just made has no leader for a moment."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        while True:
            left = max(0.1, deadline - loop.time())
            found: dict[K, T | KafkaError] = {}
            for part, future in question(self.admin, left).items():
                found[part] = await self._answer(doing, future, left)
            alive()
            busy = [error for error in found.values() if isinstance(error, KafkaError) and error.code() in BUSY]
            if not busy:
                return found
            self._admin = None  # it keeps what it knew of leaders and controllers; a new one asks
            if loop.time() + PAUSE > deadline:
                raise BrokerUnavailable(f"Kafka, {doing}: {words(busy[0])}{self._why()}")
            await asyncio.sleep(PAUSE)

    async def wait_for(self, doing: str, work: Callable[[], T], *, but: Collection[int] = ()) -> T:
        """Let a thread do something with a client, again until the time is up where the servers are busy. Errors with one of
        these codes are the caller's."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        while True:
            with mapped(doing, but=but):
                try:
                    async with asyncio.timeout_at(deadline + 2 * self.timeout):
                        return await asyncio.to_thread(work)
                except TimeoutError as error:
                    raise BrokerUnavailable(f"Kafka, {doing}: the driver does not come back") from error
                except KafkaException as error:
                    if error.args[0].code() not in BUSY:
                        raise
                    if loop.time() + PAUSE > deadline:
                        raise BrokerUnavailable(f"Kafka, {doing}: {words(error.args[0])}") from error
            await asyncio.sleep(PAUSE)

    async def _answer(self, doing: str, future: Future[Any], patience: float) -> Any:
        try:
            async with asyncio.timeout(patience + 1.0):
                return await asyncio.wrap_future(future)
        except KafkaException as error:
            first: KafkaError = error.args[0]
            if first.code() < 0 and first.code() not in BUSY:  # the client's own: nobody answered
                raise BrokerUnavailable(f"Kafka, {doing}: {words(first)}{self._why()}") from error
            return first
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka, {doing}: no answer in time{self._why()}") from error

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._SSL or "SSL alert" in error.str():
            self._no_tls = error.str()

    def _why(self) -> str:
        """The driver hands out what went wrong when it is asked."""
        if self._admin is not None:
            self._admin.poll(0)
        found, self._no_tls = self._no_tls, ""
        return f"; no TLS: {found}" if found else ""


PAUSE = 0.05
REFUSALS = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_GROUP_ID,
)
"""Answers that are the same when asked again."""
BUSY = (
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_CONTROLLER,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._UNKNOWN_PARTITION,
)
"""Answers of servers that are busy with themselves, or know more than the client."""


def words(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"


def answer(doing: str, found: T | KafkaError) -> T:
    """What was found. Raises BrokerError when the server refused to tell."""
    if isinstance(found, KafkaError):
        raise BrokerError(f"Kafka, {doing}: {words(found)}")
    return found


@contextlib.contextmanager
def mapped(doing: str, *, but: Collection[int] = ()) -> Iterator[None]:
    """Foreign errors end here, but for those with one of these codes."""
    try:
        yield
    except KafkaException as error:
        first: KafkaError = error.args[0]
        if first.code() in but:
            raise
        if first.code() in REFUSALS:
            raise BrokerError(f"Kafka, {doing}: {words(first)}") from error
        raise BrokerUnavailable(f"Kafka, {doing}: {words(first)}") from error
    except RuntimeError as error:  # the driver's word for a client that was closed
        raise BrokerUnavailable(f"Kafka, {doing}: {error}") from error
    alive()


@contextlib.contextmanager
def configured() -> Iterator[None]:
    """Around the making of a client: the driver says which of its options do not fit."""
    try:
        yield
    except KafkaException as error:
        first = error.args[0]
        if first.code() in FOREVER:
            raise ConfigurationError(f"Kafka's driver refuses its options: {first.str()}") from error
        raise BrokerUnavailable(f"Kafka, making a client: {words(first)}") from error

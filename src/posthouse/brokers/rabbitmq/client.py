"""The connection: opened when first used, again when it was lost, and every foreign error mapped once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiormq import Channel
from aiormq.abc import AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelInvalidStateError,
    ConnectionFrameError,
    ConnectionSyntaxError,
    ConnectionUnexpectedFrame,
)
from yarl import URL

from posthouse.brokers.rabbitmq.reading import Line
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.local.naming import client_name
from posthouse.pulse import alive

T = TypeVar("T")
UNLIMITED = 2**32
FOREIGN = (AMQPError, OSError, TimeoutError, ChannelInvalidStateError)


class Cord(TransportFactory):
    """The socket of one connection, to be cut whatever the driver is doing with it."""

    def __init__(self, make: TransportFactory | None) -> None:
        self._make = make
        self._writer: asyncio.StreamWriter | None = None
        self._is_cut = False

    async def create(self, url: URL, **options: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        make = self._make or (TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory())
        reader, writer = await make.create(url, **options)
        self._writer = writer
        if self._is_cut:
            self.cut()
            raise AMQPConnectionError("it was given up while it was opened")
        return reader, writer

    def cut(self) -> None:
        self._is_cut = True
        if self._writer is not None:
            self._writer.transport.abort()


class Client:
    """One connection at a time. `heartbeat`: whole seconds; who is silent for twice as long is gone."""

    def __init__(self, url: str, *, timeout: float, heartbeat: int, driver: Mapping[str, object]) -> None:
        self._url = url
        self._address = address_of(url, heartbeat)
        self.timeout = timeout
        self.heartbeat = heartbeat
        self._driver = driver
        self._connection: AbstractConnection | None = None
        self._cord: Cord | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    def twin(self) -> Client:
        """Another connection to the same server."""
        return Client(self._url, timeout=self.timeout, heartbeat=self.heartbeat, driver=self._driver)

    async def connection(self) -> AbstractConnection:
        """The one that is open."""
        async with self._opening:
            if self._closed:
                raise BrokerError("this broker was closed")
            if self._connection is None or self._connection.is_closed or not self._connection.is_opened:
                await self._open()
            assert self._connection is not None
            return self._connection

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new one. With `confirms`, a message that no queue takes is an error of its publisher."""
        connection = await self.connection()
        with mapped("opening a channel"):
            channel = await within(self.timeout, connection.channel(publisher_confirms=confirms))
        assert isinstance(channel, Channel)
        return channel

    @contextlib.asynccontextmanager
    async def errand(self) -> AsyncIterator[Channel]:
        """A channel for a few questions; a wrong one closes it."""
        channel = await self.channel()
        try:
            yield channel
        finally:
            await quietly(channel.close(), self.timeout)

    async def version(self) -> str:
        return str((await self.connection()).server_properties.get("version", ""))

    async def largest(self) -> int:
        """The bytes of the largest piece that this connection takes."""
        tune = getattr(await self.connection(), "connection_tune", None)
        return getattr(tune, "frame_max", 0) or UNLIMITED

    async def drop(self) -> None:
        """End this connection, however it is; the next use opens another."""
        connection, cord = self._connection, self._cord
        self._connection = self._cord = None
        try:
            if connection is not None:
                await quietly(connection.close(), self.timeout)
        finally:
            if cord is not None:
                cord.cut()

    def abandon(self) -> None:
        """End it at once, without a word and without waiting: the server takes back what it had. The next use opens another."""
        cord, self._connection, self._cord = self._cord, None, None
        if cord is not None:
            cord.cut()

    def close_at_once(self) -> None:
        """As `aclose`, for somebody who cannot wait."""
        self._closed = True
        self.abandon()

    async def aclose(self) -> None:
        self._closed = True
        async with self._opening:
            await self.drop()

    async def _open(self) -> None:
        await self.drop()
        cord = self._cord = Cord(self._driver.get("transport_factory"))  # type: ignore[arg-type]  # the driver's own
        options = {**self._driver, "transport_factory": cord}
        try:
            with mapped("connecting"):
                connection = Line(self._address, **options)  # type: ignore[arg-type]  # the driver checks what it is given
                await within(self.timeout, connection.connect())
        except BaseException:
            cord.cut()
            raise
        if cord is not self._cord:  # given up meanwhile
            cord.cut()
            raise BrokerUnavailable("RabbitMQ, connecting: it was given up")
        self._connection = connection


def address_of(url: str, heartbeat: int) -> str:
    """As the driver wants it: `rabbitmq` is called `amqp` there."""
    parts = urlsplit(url)
    said = parse_qsl(parts.query)
    named = [] if any(option == "name" for option, _ in said) else [("name", client_name("broker"))]
    query = [*said, *named, ("heartbeat", str(heartbeat))]
    return parts._replace(scheme=parts.scheme.replace("rabbitmq", "amqp"), query=urlencode(query)).geturl()


async def within(timeout: float, call: Awaitable[T]) -> T:
    """What the driver answers, or TimeoutError. The driver may take a cancellation and go on waiting, for room in a queue that
    nobody empties any more: so it is told, and not waited for."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            task.cancel()
    if not task.done():
        raise TimeoutError
    return task.result()


async def quietly(closing: Awaitable[object], timeout: float) -> None:
    """Close something that may be gone already, and wait no longer than that."""
    with contextlib.suppress(BrokerUnavailable), mapped("closing"):
        await within(timeout, closing)


async def together(*steps: Coroutine[object, object, T]) -> list[T]:
    """Side by side. When one fails the others are ended before its error leaves."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Foreign errors end here. The driver ends its calls with CancelledError, or a bare Exception, when a connection
    goes; that is no cancellation of ours."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BrokerUnavailable(f"RabbitMQ, {doing}: the connection was lost") from error
    except FOREIGN as error:
        raise unavailable(doing, error) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise unavailable(doing, error) from error
    alive()


class Wrong(BrokerUnavailable):
    """The server ended the connection because of what we said; said again it would do so again."""


def unavailable(doing: str, error: BaseException) -> BrokerUnavailable:
    if isinstance(error, ConnectionFrameError | ConnectionSyntaxError | ConnectionUnexpectedFrame):
        return Wrong(f"RabbitMQ, {doing}: {error}")
    what = "no answer in time" if isinstance(error, TimeoutError) else str(error) or "the connection was lost"
    return BrokerUnavailable(f"RabbitMQ, {doing}: {what}")

"""The connection: opened when first used, again when it was lost, and every foreign error mapped once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiormq
from aiormq import Channel
from aiormq.abc import AbstractConnection
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from posthouse.errors import BrokerError, BrokerUnavailable

FOREIGN = (AMQPError, OSError, TimeoutError, ChannelInvalidStateError)


class Wire:
    """One connection at a time. `heartbeat`: whole seconds; who is silent for twice as long is gone."""

    def __init__(self, url: str, *, timeout: float, heartbeat: int, driver: Mapping[str, object]) -> None:
        self._url = url
        self._address = address_of(url, heartbeat)
        self.timeout = timeout
        self.heartbeat = heartbeat
        self._driver = driver
        self._connection: AbstractConnection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    def twin(self) -> Wire:
        """Another connection to the same server."""
        return Wire(self._url, timeout=self.timeout, heartbeat=self.heartbeat, driver=self._driver)

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
            async with asyncio.timeout(self.timeout):
                channel = await connection.channel(publisher_confirms=confirms)
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

    async def drop(self) -> None:
        """End this connection, however it is; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await quietly(connection.close(), self.timeout)

    async def aclose(self) -> None:
        self._closed = True
        async with self._opening:
            await self.drop()

    async def _open(self) -> None:
        await self.drop()
        with mapped("connecting"):
            async with asyncio.timeout(self.timeout):
                self._connection = await aiormq.connect(self._address, **self._driver)  # type: ignore[arg-type]  # the driver checks what it is given


def address_of(url: str, heartbeat: int) -> str:
    """As the driver wants it: `rabbitmq` is called `amqp` there."""
    parts = urlsplit(url)
    query = [*parse_qsl(parts.query), ("heartbeat", str(heartbeat))]
    return parts._replace(scheme=parts.scheme.replace("rabbitmq", "amqp"), query=urlencode(query)).geturl()


async def quietly(closing: object, timeout: float) -> None:
    """Close something that may be gone already, and wait no longer than that."""
    with contextlib.suppress(BrokerUnavailable), mapped("closing"):
        async with asyncio.timeout(timeout):
            await closing  # type: ignore[misc]  # the driver's awaitables have no common type


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


def unavailable(doing: str, error: BaseException) -> BrokerUnavailable:
    what = "no answer in time" if isinstance(error, TimeoutError) else str(error) or "the connection was lost"
    return BrokerUnavailable(f"RabbitMQ, {doing}: {what}")

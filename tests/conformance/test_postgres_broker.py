import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

import posthouse.brokers.postgres.client as database
from posthouse.broker import Broker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import LocalBrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from posthouse.testing.broker_contract.links import LinkContract
from posthouse.testing.broker_contract.outages import OutageContract
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_postgres
from tests.kit.servers.postgres import binaries
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.restartable import RestartablePostgres, restartable
from tests.kit.spoiling import in_postgres


class TestPostgresBroker(LocalBrokerContract):
    @pytest.fixture(autouse=True)
    def _log(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def make_broker(self) -> Broker:
        return PostgresBroker(self.url, clock=SystemClock(), lease=0.5, retention=0.0)

    async def make_doomed(self) -> Broker:
        return PostgresBroker(self.url, clock=ManualClock(time.time()), lease=0.5)  # it never renews: it hangs

    async def expire(self, broker: Broker) -> None:
        assert isinstance(broker, PostgresBroker)
        assert await broker.prune() == 3

    async def spoil_frame(self, topic: str) -> None:
        await in_postgres(self.url, topic)

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_postgres(self.url, topic)


class TestPostgresBrokerPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _log(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def make_broker(self) -> Broker:
        return PostgresBroker(self.url, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_postgres(self.url, topic)


class Crashing:
    """A server of PostgreSQL as the contract ends it."""

    def __init__(self, postgres: RestartablePostgres) -> None:
        self._postgres = postgres
        self.url = postgres.url

    async def restart(self) -> None:
        await asyncio.to_thread(self._again, self._postgres.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self._again, self._postgres.crash)

    def _again(self, end: Callable[[], None]) -> None:
        end()
        self._postgres.start()


@pytest.fixture(scope="module")
def crashing() -> Iterator[Crashing]:
    with restartable(binaries()) as postgres:
        yield Crashing(postgres)


class TestPostgresBrokerThatGoesAway(OutageContract, LinkContract):
    """The server crashes, and the way to it is cut."""

    @pytest_asyncio.fixture(autouse=True)
    async def _log(self, crashing: Crashing, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
        for patience in ("PATIENCE", "CONNECTING", "CLOSING"):
            monkeypatch.setattr(database, patience, 2.0)
        self.server: Crashing = crashing
        self.parts = urlsplit(crashing.url)
        async with Proxy("127.0.0.1", self.parts.port or 0) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return PostgresBroker(self.server.url, clock=SystemClock(), lease=0.5, retention=0.0)

    async def make_linked(self) -> tuple[Broker, Link]:
        url = self.parts._replace(netloc=f"postgres@127.0.0.1:{self.proxy.port}").geturl()
        return PostgresBroker(url, clock=SystemClock(), lease=0.5), self.proxy

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_postgres(self.server.url, topic)

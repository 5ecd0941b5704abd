import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.nats import NatsBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import all_from_nats, from_nats
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.proxy import Proxy


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # the client lets go of sockets that were cut while it connected
)
class TestNats(BrokerContract):
    survives_kill = True
    hears_of_a_seek_late = True  # the server sends ahead, and knows nothing of owners

    @pytest.fixture(autouse=True)
    def _server(self, nats_server: NatsServer) -> None:
        self.server: NatsServer = nats_server

    @pytest_asyncio.fixture(autouse=True)
    async def _proxy(self, nats_server: NatsServer) -> AsyncIterator[None]:
        async with Proxy("127.0.0.1", nats_server.port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return NatsBroker(self.server.url, clock=SystemClock(), lease=0.6, dedup=2.0)

    async def make_doomed(self) -> Broker:
        return NatsBroker(self.server.url, clock=ManualClock(time.time()), lease=0.6)  # it never signs again: it hangs

    async def make_linked(self) -> tuple[Broker, Link]:
        url = f"nats://127.0.0.1:{self.proxy.port}"
        return NatsBroker(url, clock=SystemClock(), lease=0.6, timeout=1.0, driver={"ping_interval": 1}), self.proxy

    async def make_restricted(self, topic: str) -> Broker:
        return NatsBroker(self.server.url_of("guest"), clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_nats(self.server.url, topic)

    async def outlast_dedup(self, broker: Broker) -> None:
        await asyncio.sleep(2.5)  # the server's clock cannot be moved


class TestNatsPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _server(self, nats_server: NatsServer) -> None:
        self.url = nats_server.url

    async def make_broker(self) -> Broker:
        return NatsBroker(self.url, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_nats(self.url, topic)

    async def empty(self, topic: str) -> int:
        return await all_from_nats(self.url, topic)

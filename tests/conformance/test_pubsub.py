import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.servers.proxy import Proxy
from tests.servers.pubsub import PubSubServer


class TestPubSub(BrokerContract):
    @pytest_asyncio.fixture(autouse=True)
    async def _proxy(self, pubsub_server: PubSubServer) -> AsyncIterator[None]:
        self.address = pubsub_server.address
        async with Proxy("127.0.0.1", pubsub_server.port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=SystemClock(), lease=2)

    async def make_doomed(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=ManualClock(time.time()), lease=1)  # it renews nothing

    async def make_linked(self) -> tuple[Broker, Link]:
        address = f"127.0.0.1:{self.proxy.port}"
        return PubSubBroker("shop", emulator=address, clock=SystemClock(), lease=2, timeout=1.0), self.proxy


class TestPubSubPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _server(self, pubsub_server: PubSubServer) -> None:
        self.address = pubsub_server.address

    async def make_broker(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=SystemClock())

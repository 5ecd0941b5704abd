import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from posthouse.testing.broker_contract.surveying import SurveyingContract
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_rabbitmq
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitmqServer


class TestRabbitmq(BrokerContract):
    deadline = 60.0  # a node takes seconds to start
    lists = False  # AMQP does not

    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq_server: RabbitmqServer) -> None:
        self.node = rabbitmq_server
        self.server = rabbitmq_server if rabbitmq_server.ours else None

    @pytest_asyncio.fixture(autouse=True)
    async def _proxies(self, rabbitmq_server: RabbitmqServer) -> AsyncIterator[None]:
        async with Proxy("127.0.0.1", rabbitmq_server.port) as self.proxy, asyncio.TaskGroup() as self.tasks:
            yield

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(self.node.url, clock=SystemClock(), partitions=4, settle=0, heartbeat=1)

    async def make_doomed(self) -> Broker:
        """It is cut off as soon as it has nothing more to say, and its clock stands still."""
        self.tasks.create_task(self.proxy.cut_when_silent(0.5))
        url = self.node.url_of("shop", self.proxy.port)
        return RabbitmqBroker(url, clock=ManualClock(time.time()), partitions=4, settle=0, heartbeat=60, timeout=1.0)

    async def make_linked(self) -> tuple[Broker, Link]:
        url = self.node.url_of("shop", self.proxy.port)
        return RabbitmqBroker(url, clock=SystemClock(), partitions=4, settle=0, heartbeat=1, timeout=1.0), self.proxy

    async def make_restricted(self, topic: str) -> Broker:
        return RabbitmqBroker(self.node.url_of("reader"), clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_rabbitmq(self.node.url, topic, group, lanes=4)


class TestRabbitmqManaged(SurveyingContract):
    """With the management API a survey sees everything."""

    @pytest.fixture(autouse=True)
    def _server(self, managed_rabbitmq_server: RabbitmqServer) -> None:
        self.node = managed_rabbitmq_server

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(
            self.node.url, clock=SystemClock(), partitions=4, settle=0, heartbeat=1, management=self.node.management
        )


class TestRabbitmqPath(BrokerPathContract):
    can_count = False  # nobody knows whether a group was there before the first frame

    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq_server: RabbitmqServer) -> None:
        self.url = rabbitmq_server.url

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(self.url, clock=SystemClock(), partitions=4, settle=0)

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_rabbitmq(self.url, topic, group, lanes=4)

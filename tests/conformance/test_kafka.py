import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.kafka import KafkaBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.kit.servers.kafka import KafkaServer
from tests.kit.servers.proxy import Proxy
from tests.kit.spoiling import in_kafka

LEASE = 3.0
GUEST = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
GUEST |= {"sasl.username": "guest", "sasl.password": "guest"}


class TestKafka(BrokerContract):
    survives_kill = True
    deadline = 60.0  # a server in Java takes its time to start

    @pytest.fixture(autouse=True)
    def _server(self, kafka_server: KafkaServer) -> None:
        self.kafka = kafka_server
        self.server = kafka_server if kafka_server.controlled else None

    async def spoil_frame(self, topic: str) -> None:
        await asyncio.to_thread(in_kafka, self.kafka.servers, topic)

    async def make_broker(self) -> Broker:
        return KafkaBroker(self.kafka.servers, clock=SystemClock(), lease=LEASE)

    async def make_doomed(self) -> Broker:
        return KafkaBroker(self.kafka.servers, clock=ManualClock(), lease=2 * LEASE)  # no sign of life: it hangs

    async def make_linked(self) -> tuple[Broker, Link]:
        if not self.kafka.controlled:
            pytest.skip("this server's address cannot be that of a proxy")
        link = Proxy("127.0.0.1", self.kafka.behind, listen=self.kafka.link)
        await link.__aenter__()
        self.links.append(link)
        servers = f"127.0.0.1:{self.kafka.link}"
        return KafkaBroker(servers, clock=SystemClock(), lease=LEASE, timeout=1.0), link

    async def make_restricted(self, topic: str) -> Broker:
        if not self.kafka.controlled:
            pytest.skip("nothing is known about the rights on this server")
        return KafkaBroker(f"127.0.0.1:{self.kafka.guests}", clock=SystemClock(), driver=GUEST)

    @pytest_asyncio.fixture(autouse=True)
    async def _links(self) -> AsyncIterator[None]:
        self.links: list[Proxy] = []
        yield
        for link in self.links:
            await link.__aexit__()


class TestKafkaPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _server(self, kafka_server: KafkaServer) -> None:
        self.servers = kafka_server.servers

    async def make_broker(self) -> Broker:
        return KafkaBroker(self.servers, clock=SystemClock(), lease=LEASE)

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers import open_broker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.kit.long import LONG
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.sqs import SqsServer, url_at


class TestSqs(BrokerContract):
    tells_ages = False  # only CloudWatch knows, a minute later
    knows_what_was_given_back = False
    sees_members = False
    most_in_hand = 8  # one of each key: of one that is in hand nothing more comes
    standstill = 5.0
    deadline = 100.0  # moto needs 2 ms of CPU for each message of the 10,000
    stress = 10_000 if LONG else 2_000  # it is the emulator that is slow

    @pytest.fixture(autouse=True)
    def _url(self, sqs_url: str) -> None:
        self.url = f"{sqs_url}{'&' if '?' in sqs_url else '?'}visibility=3&poll=1"

    @pytest_asyncio.fixture(autouse=True)
    async def _proxy(self, sqs_server: SqsServer) -> AsyncIterator[None]:
        async with Proxy("127.0.0.1", sqs_server.port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return open_broker(self.url, clock=SystemClock())

    async def make_doomed(self) -> Broker:
        return open_broker(self.url, clock=ManualClock(time.time()))  # it never renews: it hangs

    async def make_linked(self) -> tuple[Broker, Link]:
        return open_broker(f"{url_at(self.proxy.port)}&timeout=1&visibility=3&poll=1", clock=SystemClock()), self.proxy

    async def outlast_dedup(self, broker: Broker) -> None:
        await asyncio.sleep(4.5)  # the emulator is told to remember for 4 s; its clock cannot be moved


class TestSqsPath(BrokerPathContract):
    knows_what_was_given_back = False

    @pytest.fixture(autouse=True)
    def _url(self, sqs_url: str) -> None:
        self.url = f"{sqs_url}{'&' if '?' in sqs_url else '?'}poll=1"

    async def make_broker(self) -> Broker:
        return open_broker(self.url, clock=SystemClock())

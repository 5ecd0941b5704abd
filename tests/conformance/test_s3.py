"""The adapter that docs/brokers/writing-one.md leads to."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiobotocore.config import AioConfig

from docs.examples.brokers.s3 import S3Broker
from posthouse.broker import Broker
from posthouse.clock import Clock, ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.kit.long import LONG
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.s3 import BUCKET, credentials


def opened(port: int, clock: Clock) -> Broker:
    impatient = AioConfig(connect_timeout=1.5, read_timeout=1.5, retries={"total_max_attempts": 1})
    return S3Broker(BUCKET, clock=clock, lease=2.0, poll=0.02, config=impatient, **credentials(port))


class TestS3(BrokerContract):
    knows_what_was_given_back = False
    tells_ages = False  # it could, by a request more for each partition
    deadline = 60.0
    stress = 10_000 if LONG else 2_000  # it is the emulator that is slow
    """Each frame is a few requests to a server that answers one at a time."""

    @pytest_asyncio.fixture(autouse=True)
    async def _server(self, s3_port: int) -> AsyncIterator[None]:
        self.port = s3_port
        async with Proxy("127.0.0.1", s3_port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return opened(self.port, SystemClock())

    async def make_doomed(self) -> Broker:
        return opened(self.port, ManualClock(time.time()))  # it never renews: it hangs

    async def make_linked(self) -> tuple[Broker, Link]:
        return opened(self.proxy.port, SystemClock()), self.proxy


class TestS3Path(BrokerPathContract):
    knows_what_was_given_back = False

    @pytest.fixture(autouse=True)
    def _server(self, s3_port: int) -> None:
        self.port = s3_port

    async def make_broker(self) -> Broker:
        return opened(self.port, SystemClock())

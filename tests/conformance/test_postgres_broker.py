import time

import pytest

from posthouse.broker import Broker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_postgres


class TestPostgresBroker(BrokerContract):
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

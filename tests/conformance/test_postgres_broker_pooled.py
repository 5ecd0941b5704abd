import time
from urllib.parse import urlsplit

import pytest

from posthouse.broker import Broker, Topology
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.errors import ConfigurationError
from posthouse.testing.broker_contract import LocalBrokerContract
from tests.kit.servers.postgres import PostgresServer


class TestPostgresBrokerBehindAPooler(LocalBrokerContract):
    @pytest.fixture(autouse=True)
    def _log(self, postgres_url: str, pgbouncer: PostgresServer) -> None:
        self.url = urlsplit(postgres_url)._replace(netloc=urlsplit(pgbouncer.url).netloc).geturl()

    async def make_broker(self) -> Broker:
        return PostgresBroker(self.url, clock=SystemClock(), lease=0.5, retention=0.0, pooled=True)

    async def make_doomed(self) -> Broker:
        return PostgresBroker(self.url, clock=ManualClock(time.time()), lease=0.5, pooled=True)

    async def expire(self, broker: Broker) -> None:
        assert isinstance(broker, PostgresBroker)
        assert await broker.prune() == 3

    async def test_a_pooler_that_was_not_declared_is_refused(self) -> None:
        broker = PostgresBroker(self.url, clock=SystemClock())
        with pytest.raises(ConfigurationError, match="pooler=transaction"):
            await broker.ensure(Topology(topics=["t"]))
        await broker.aclose()

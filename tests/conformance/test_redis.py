import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.redis import RedisBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import all_from_redis, from_redis
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.redis import RedisServer


class TestRedis(BrokerContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server: RedisServer = redis_server

    @pytest_asyncio.fixture(autouse=True)
    async def _proxy(self, redis_server: RedisServer) -> AsyncIterator[None]:
        async with Proxy("127.0.0.1", redis_server.port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return RedisBroker(self.server.url, clock=SystemClock(), lease=0.6, retention=0.0)

    async def make_doomed(self) -> Broker:
        return RedisBroker(self.server.url, clock=ManualClock(time.time()), lease=0.6)  # it never renews: it hangs

    async def make_linked(self) -> tuple[Broker, Link]:
        url = f"redis://127.0.0.1:{self.proxy.port}"
        return RedisBroker(url, clock=SystemClock(), lease=0.6, timeout=1.0), self.proxy

    async def make_restricted(self, topic: str) -> Broker:
        return RedisBroker(self.server.url_of_guest(), clock=SystemClock())

    async def expire(self, broker: Broker) -> None:
        assert isinstance(broker, RedisBroker)
        assert await broker.prune() > 0

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_redis(self.server.url, topic)


class TestRedisPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    async def make_broker(self) -> Broker:
        return RedisBroker(self.url, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_redis(self.url, topic)

    async def empty(self, topic: str) -> int:
        return await all_from_redis(self.url, topic)

"""The whole way of an event over the brokers that need no server."""

from pathlib import Path

import pytest

from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker, MemoryLog
from posthouse.clock import SystemClock
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_embedded


class TestMemoryPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log = MemoryLog()

    async def make_broker(self) -> Broker:
        return MemoryBroker(clock=SystemClock(), log=self.log)

    async def test_what_was_applied_is_acknowledged_while_a_slow_handler_goes_on(self) -> None:
        self.deadline = 10.0
        async with self.prepared() as house, self.looking(house) as looker:
            async with self.running(house.orders):
                await house.place("slow", 1, 2)
                await house.place("other", 1, 2, 3)
                await self.until(house.unsent, lambda unsent: unsent == 0)
            async with self.running(house.billing):
                await self.until(looker.line, lambda line: line.applied > 0 and line.difference == 0)
                assert (await looker.line()).in_flight > 0
                house.go_on.set()


class TestEmbeddedPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _log(self, tmp_path: Path) -> None:
        self.path = tmp_path / "log.db"

    async def make_broker(self) -> Broker:
        return EmbeddedBroker(self.path, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return from_embedded(self.path, topic)

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


class TestEmbeddedPath(BrokerPathContract):
    @pytest.fixture(autouse=True)
    def _log(self, tmp_path: Path) -> None:
        self.path = tmp_path / "log.db"

    async def make_broker(self) -> Broker:
        return EmbeddedBroker(self.path, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return from_embedded(self.path, topic)

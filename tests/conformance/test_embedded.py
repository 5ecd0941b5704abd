import time
from pathlib import Path

import pytest

from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import LocalBrokerContract
from tests.conformance.losing import from_embedded
from tests.kit.spoiling import in_embedded


class TestEmbedded(LocalBrokerContract):
    @pytest.fixture(autouse=True)
    def _log(self, tmp_path: Path) -> None:
        self.path = tmp_path / "log.db"

    async def spoil_frame(self, topic: str) -> None:
        in_embedded(self.path, topic)

    async def make_broker(self) -> Broker:
        return EmbeddedBroker(self.path, clock=SystemClock(), lease=0.5, retention=0.0)

    async def lose_frames(self, topic: str, group: str) -> int:
        return from_embedded(self.path, topic)

    async def make_doomed(self) -> Broker:
        return EmbeddedBroker(self.path, clock=ManualClock(time.time()), lease=0.5)  # its time stands still: it hangs

    async def expire(self, broker: Broker) -> None:
        assert isinstance(broker, EmbeddedBroker)
        assert await broker.prune() == 3

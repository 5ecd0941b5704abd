import pytest

from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker, MemoryLog
from posthouse.clock import SystemClock
from posthouse.testing.broker_contract import LocalBrokerContract


class TestMemory(LocalBrokerContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log = MemoryLog()

    async def make_broker(self) -> Broker:
        return MemoryBroker(clock=SystemClock(), log=self.log)

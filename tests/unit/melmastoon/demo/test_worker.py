"""A process of the platform begins in the middle of a storm."""

from __future__ import annotations

from pathlib import Path

from melmastoon.demo.worker import prepared
from posthouse import App, Payload, Service
from posthouse.broker import Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable


class Busy(MemoryBroker):
    """A broker that is too busy to answer the first time."""

    asked = 0

    async def ensure(self, topology: Topology) -> None:
        self.asked += 1
        if self.asked == 1:
            raise BrokerUnavailable("no answer in time")
        await super().ensure(topology)


async def test_a_process_waits_for_a_server_that_does_not_answer_at_once(tmp_path: Path) -> None:
    broker = Busy(clock=SystemClock())
    service = Service("hotel")
    App(service, store=f"sqlite:///{tmp_path}/hotel.db", broker=broker)

    @service.event("guest.came.v1", key="name")
    class Came(Payload):
        name: str

    try:
        assert (await prepared(service)).name == "hotel"
        assert broker.asked == 2
    finally:
        await service.aclose()

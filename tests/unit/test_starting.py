"""A service that runs in the background of a block: what goes wrong there is told, and tried again."""

from __future__ import annotations

import logging

import pytest

from posthouse import App, Event, Payload, Service, starting
from posthouse.broker import Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable
from tests.kit.waiting import eventually


class Placed(Payload):
    order_id: str


class Odd(MemoryBroker):
    """Away, then half way through an election, then there."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.answers: list[Exception] = [BrokerUnavailable("not yet"), KeyError("leader of nats://me:S3cret@host")]

    async def ensure(self, topology: Topology) -> None:
        if self.answers:
            raise self.answers.pop(0)
        await super().ensure(topology)


async def test_an_error_that_nobody_foresaw_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "FIRST", 0.01)
    monkeypatch.setattr(starting, "LAST", 0.3)
    shop, got = Service("shop"), list[str]()
    shop.event("order.placed.v1", key="order_id")(Placed)

    @shop.on(Placed)
    async def pack(event: Event[Placed]) -> None:
        got.append(event.data.order_id)

    app = App(shop, store="sqlite://", broker=Odd())
    with caplog.at_level(logging.ERROR, "posthouse.run"):
        async with app.running():
            await eventually(lambda: not app.health().live)
            async with shop.transaction("t1") as tx:
                tx.publish(Placed(order_id="o1"))
            await eventually(lambda: got == ["o1"])
            assert app.health().live
    (line,) = [record.getMessage() for record in caplog.records if record.name == "posthouse.run"]
    assert line.startswith("shop cannot run, next try in 0.3 s: KeyError: ")
    assert "Traceback" in line
    assert "S3cret" not in line

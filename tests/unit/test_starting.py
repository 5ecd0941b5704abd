"""A service that runs in the background of a block: what goes wrong there is told, and tried again."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Service, heartbeat, starting
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


async def test_a_store_that_takes_no_sign_of_life_is_not_ready_long_before_its_connections_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 0.05)
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.2)
    app = App(Service("shop"), store=f"sqlite:///{tmp_path / 'shop.db'}", broker="memory://")
    async with app.running(only=["relay"]):
        await eventually(lambda: app.health().ready)
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await eventually(lambda: not app.health().ready)
            (store,) = [part for part in app.health().parts if part.name == "store"]
            assert (store.state, store.reason) == ("waiting", "it has taken no sign of life for more than 0.2 s")
            assert app.health().live
            other.execute("ROLLBACK")
        await eventually(lambda: app.health().ready)

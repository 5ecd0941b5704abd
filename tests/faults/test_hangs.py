"""Drivers that do not come back. Whoever waits for one is given up after a while, says so, and starts over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Policy, RelaySettings, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Delivery, Frame, Start, Verdict
from posthouse.brokers.memory import MemoryBroker, MemoryStream
from posthouse.clock import SystemClock
from posthouse.pulse import Pulse
from posthouse.runtime import Runtime
from posthouse.testing import rehost
from posthouse.watch.status import status
from tests.kit.waiting import eventually

PATIENCE = 30.0


class Placed(Payload):
    order: str
    number: int


class Hanging:
    """Calls that never come back, `times` of each verb; `deaf` ones do not even hear that they are cancelled."""

    def __init__(self, verb: str, *, deaf: bool, times: int = 1) -> None:
        self.verb = verb
        self.deaf = deaf
        self.left = times
        self.over = asyncio.Event()

    async def pass_by(self, verb: str) -> None:
        if verb != self.verb or self.left == 0:
            return
        self.left -= 1
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise


class HangingStream(MemoryStream):
    hanging: Hanging

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        await self.hanging.pass_by("receive")
        return await super().receive(limit, wait)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self.hanging.pass_by("ack")
        await super().ack(deliveries)

    async def aclose(self) -> None:
        await self.hanging.pass_by("aclose")
        await super().aclose()


class HangingBroker(MemoryBroker):
    hanging: Hanging

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        await self.hanging.pass_by("publish")
        return await super().publish(frames)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> MemoryStream:
        await self.hanging.pass_by("subscribe")
        stream = await super().subscribe(group, topics, start=start, window=window)
        stream.__class__ = HangingStream
        assert isinstance(stream, HangingStream)
        stream.hanging = self.hanging
        return stream


def pulses(runtime: Runtime) -> list[Pulse]:
    several = [*(consumer.pulse for consumer in runtime.consumers), *(retrier.pulse for retrier in runtime.retriers)]
    return [runtime.pulse, runtime.relay.pulse, runtime.timers.pulse, *several]


@pytest.mark.parametrize("deaf", [False, True], ids=["that hears its cancellation", "that hears nothing"])
@pytest.mark.parametrize("verb", ["publish", "subscribe", "receive", "ack"])
async def test_a_driver_that_hangs_is_given_up_and_everything_is_applied_without_a_new_process(
    tmp_path: Path, verb: str, deaf: bool, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service("shop")
    App(service, settings=Settings(relay=RelaySettings(lease=1.0, idle=0.2)))
    service.event("order.placed.v1", key="order")(Placed)
    heard: list[int] = []

    @service.on(Placed)
    async def hear(event: Event[Placed], tx: Tx) -> None:
        heard.append(event.data.number)

    clock, hanging = SystemClock(), Hanging(verb, deaf=deaf)
    broker = HangingBroker(clock=clock)
    broker.hanging = hanging
    rehost(service, store=f"sqlite:///{tmp_path}/shop.db", broker=broker, clock=clock)
    runtime, stop = await app_of(service).opened.prepare(), asyncio.Event()
    for pulse in pulses(runtime):
        pulse.patience = 1.0
    running = asyncio.create_task(runtime.run(stop))
    try:
        for number in range(40):
            async with service.transaction("t1") as tx:
                tx.publish(Placed(order=f"o{number % 4}", number=number))
        async with asyncio.timeout(PATIENCE):
            while len(set(heard)) < 40 or not (await status([service])).quiet:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
        assert hanging.left == 0
        assert sorted(heard) == list(range(40))
        for key in range(4):
            assert [number for number in heard if number % 4 == key] == list(range(key, 40, 4))
        said = [record.getMessage() for record in caplog.records if "hangs" in record.getMessage()]
        assert len(said) == 1, caplog.text
        assert {"publish": "publishing", "receive": "receiving", "ack": "acknowledging"}.get(
            verb, "subscribing"
        ) in said[0]
    finally:
        hanging.over.set()
        stop.set()
        async with asyncio.timeout(PATIENCE):
            await running
        await service.aclose()


async def test_a_group_that_is_only_slow_is_not_given_up_and_costs_no_event_an_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service("shop")
    App(service, settings=Settings(relay=RelaySettings(lease=1.0, idle=0.2)))
    service.event("order.placed.v1", key="order")(Placed)
    heard: list[int] = []

    @service.on(Placed, policy=Policy(grouped=True, deadline=0.3, max_attempts=1))
    async def hear(event: Event[Placed], tx: Tx) -> None:
        await asyncio.sleep(0.2)  # two of them are more than the deadline of their group: they run one by one
        heard.append(event.data.number)

    clock = SystemClock()
    rehost(service, store=f"sqlite:///{tmp_path}/shop.db", broker=MemoryBroker(clock=clock), clock=clock)
    runtime, stop = await app_of(service).opened.prepare(), asyncio.Event()
    for pulse in pulses(runtime):
        pulse.patience = 1.0
    async with service.transaction("t1") as tx:
        for number in range(20):
            tx.publish(Placed(order=f"o{number}", number=number))
    running = asyncio.create_task(runtime.run(stop))
    try:
        async with asyncio.timeout(PATIENCE):
            while not (figures := await status([service])).quiet or len(set(heard)) < 20:
                assert not sum(figures.lines[0].held.values()), caplog.text
                await asyncio.sleep(0.05)
        assert "hangs" not in caplog.text
        assert figures.lines[0].applied == 20
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE):
            await running
        await service.aclose()


async def test_a_stream_that_does_not_close_is_left_behind_when_the_service_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service("shop")
    App(service, settings=Settings(relay=RelaySettings(lease=1.0, idle=0.2)))
    service.event("order.placed.v1", key="order")(Placed)
    heard: list[int] = []

    @service.on(Placed)
    async def hear(event: Event[Placed], tx: Tx) -> None:
        heard.append(event.data.number)

    clock, hanging = SystemClock(), Hanging("aclose", deaf=True)
    broker = HangingBroker(clock=clock)
    broker.hanging = hanging
    rehost(service, store=f"sqlite:///{tmp_path}/shop.db", broker=broker, clock=clock)
    runtime, stop = await app_of(service).opened.prepare(), asyncio.Event()
    runtime.consumers[0].pulse.patience = 1.0
    running = asyncio.create_task(runtime.run(stop))
    async with service.transaction("t1") as tx:
        tx.publish(Placed(order="o", number=7))
    await eventually(lambda: heard, within=PATIENCE)
    stop.set()
    async with asyncio.timeout(10):
        await running
    assert "leaving the group takes longer than 1 s and is given up" in caplog.text
    hanging.over.set()
    await service.aclose()

"""The consumer: what it takes from the broker, and when it says that it is done with it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from posthouse import Event, Policy, Tx
from posthouse.broker import Delivery, Frame, Stream, Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.errors import BrokerUnavailable, StoreUnavailable
from posthouse.pulse import Pulse
from posthouse.receiving import Consumer, Executor
from posthouse.receiving.acknowledge import BATCH, Acknowledger
from posthouse.seam import Seam
from tests.kit.waiting import eventually
from tests.unit.receiving.conftest import NOTES, TOPIC, Bench, MeterRead, handled_by


@pytest.fixture
async def broker(bench: Bench) -> MemoryBroker:
    broker = MemoryBroker(clock=bench.clock)
    await broker.ensure(Topology(topics=[TOPIC, NOTES], groups={}))
    return broker


class Deaf:
    """A stream whose broker is gone."""

    def __init__(self, stream: Stream) -> None:
        self.receive, self.nack, self.aclose = stream.receive, stream.nack, stream.aclose

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        raise BrokerUnavailable("gone")


async def publish(bench: Bench, broker: MemoryBroker, numbers: Sequence[int]) -> None:
    await broker.publish([bench.delivery(MeterRead(meter="m1", value=n), n).frame for n in numbers])


async def pending(broker: MemoryBroker) -> int:
    return (await broker.progress("books", [TOPIC]))[TOPIC].pending


@asynccontextmanager
async def running(executor: Executor, broker: MemoryBroker) -> AsyncIterator[Consumer]:
    consumer, stop = Consumer(executor, broker, executor.clock), asyncio.Event()
    task = asyncio.create_task(consumer.run(stop))
    try:
        yield consumer
    finally:
        stop.set()
        await task


async def test_an_event_is_acknowledged_after_its_commit_and_not_before(bench: Bench, broker: MemoryBroker) -> None:
    runs, open_door = asyncio.Event(), asyncio.Event()

    async def wait(event: Event[MeterRead], tx: Tx) -> None:
        runs.set()
        await open_door.wait()

    await publish(bench, broker, [1])
    executor = bench.executor(handled_by(wait))
    async with running(executor, broker) as consumer:
        await runs.wait()
        assert (await pending(broker), consumer.idle) == (1, False)
        open_door.set()
        await eventually(lambda: consumer.idle)
        assert await pending(broker) == 0


async def test_an_event_whose_fate_is_unknown_is_handed_back_and_not_acknowledged(
    bench: Bench, broker: MemoryBroker
) -> None:
    tries: list[int] = []

    async def away(event: Event[MeterRead], tx: Tx) -> None:
        tries.append(event.data.value)
        if len(tries) == 1:
            raise StoreUnavailable("the database is away")

    await publish(bench, broker, [1])
    async with running(bench.executor(handled_by(away)), broker) as consumer:
        await eventually(lambda: len(tries) == 1 and consumer.idle)
        assert await pending(broker) == 1

        async def left_after_a_second() -> int:
            bench.clock.advance(1)
            return await pending(broker)

        await eventually(left_after_a_second, right=lambda left: left == 0)
    assert tries == [1], "the broker says that it may have run: it is held, with that run counted"
    assert await bench.states() == [(1, "retrying", 1)]


async def test_events_that_may_share_a_transaction_are_taken_together(bench: Bench, broker: MemoryBroker) -> None:
    lists: list[list[int]] = []

    async def take(events: list[Event[MeterRead]], tx: Tx) -> None:
        lists.append([event.data.value for event in events])

    await publish(bench, broker, range(1, 8))
    async with running(bench.executor(handled_by(take, Policy(group_size=3))), broker) as consumer:
        await eventually(lambda: sum(map(len, lists)) == 7 and consumer.idle)
    assert lists == [[1, 2, 3], [4, 5, 6], [7]]


async def test_a_frame_that_did_not_come_through_a_stream_is_dealt_with_on_return(
    bench: Bench, broker: MemoryBroker
) -> None:
    runs: list[int] = []

    async def note(event: Event[MeterRead], tx: Tx) -> None:
        runs.append(event.data.value)

    executor = bench.executor(handled_by(note))
    await Consumer(executor, broker, bench.clock).take(bench.delivery(MeterRead(meter="m1", value=5), 1))
    assert runs == [5]


async def test_acknowledgements_wait_for_each_other_and_leave_together(bench: Bench, broker: MemoryBroker) -> None:
    await publish(bench, broker, range(1, BATCH + 2))
    stream = await broker.subscribe("books", [TOPIC])
    deliveries = await stream.receive(BATCH + 1, 1.0)
    acks = Acknowledger("books", stream, Pulse())
    acks.add(deliveries[:-1])
    assert (acks.idle, acks.full, await pending(broker)) == (False, True, BATCH + 1)
    await acks.flush()
    assert (acks.idle, acks.full, await pending(broker)) == (True, False, 1)


async def test_what_was_committed_is_acknowledged_soon_whatever_the_workers_do(
    bench: Bench, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.receiving.acknowledge.DELAY", 0.01)
    await publish(bench, broker, [1])
    stream = await broker.subscribe("books", [TOPIC])
    acks, halt = Acknowledger("books", stream, Pulse()), asyncio.Event()
    task = asyncio.create_task(acks.run(halt))
    acks.add(await stream.receive(1, 1.0))
    await eventually(lambda: pending(broker), right=lambda left: left == 0)
    halt.set()
    acks.wake()
    await task


async def test_an_acknowledgement_that_the_broker_does_not_hear_is_said_and_forgotten(
    bench: Bench, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(bench, broker, [1])
    stream = await broker.subscribe("books", [TOPIC])
    acks = Acknowledger("books", Deaf(stream), Pulse())
    acks.add(await stream.receive(1, 1.0))
    with caplog.at_level(logging.INFO, "posthouse.consumer"):
        await acks.flush()
    assert acks.idle
    assert "1 acknowledgements were lost" in caplog.text


async def test_while_many_frames_are_proved_others_have_their_turn_and_the_order_stays(
    bench: Bench, broker: MemoryBroker
) -> None:
    heard: list[int] = []
    turns: list[int] = []
    proved = 0

    def prove(frame: Frame) -> None:
        nonlocal proved
        proved += 1
        until = time.perf_counter() + 0.002  # what a signature costs on a slow machine
        while time.perf_counter() < until:
            pass

    async def hear(event: Event[MeterRead], tx: Tx) -> None:
        heard.append(event.data.value)

    async def look() -> None:
        while True:
            turns.append(proved)
            await asyncio.sleep(0)

    await publish(bench, broker, range(1, 101))
    executor = bench.executor(handled_by(hear), seam=Seam(verify=prove))
    other = asyncio.create_task(look())
    try:
        async with running(executor, broker) as consumer:
            await eventually(lambda: 0 < proved < 100 and not consumer.idle, "it is not done, and says so", pause=0)
            await eventually(lambda: len(heard) == 100)
            await eventually(lambda: consumer.idle)
    finally:
        other.cancel()
    assert max(after - before for before, after in pairwise(turns)) <= 10, "never is the loop kept for all of them"
    assert heard == list(range(1, 101))

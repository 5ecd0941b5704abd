"""Real processes on a broker's server, killed, paused and joined on purpose (faults 1, 12 and 51)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.broker import Frame, Topology
from posthouse.clock import new_id
from tests.integration.members import House, housed, storm
from tests.kit.waiting import eventually

KEYS = 40


@pytest.fixture(params=["kafka", "nats", "pubsub", "rabbitmq", "redis", "sqs"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    with housed(request.param, request.getfixturevalue(f"{request.param}_server").url, tmp_path) as house:
        yield house


async def test_a_rebalance_storm_loses_nothing_and_flags_every_repeat(house: House) -> None:
    broker = house.broker()
    await broker.ensure(Topology(topics=[house.topic], groups={"g": [house.topic]}))
    sent: list[Frame] = []
    blowing = asyncio.create_task(storm(house, most=4, repeats=False))
    for number in range(1_000_000):
        frames = [Frame(topic=house.topic, id=new_id(), key=f"k{k}", body=b"%d" % number) for k in range(KEYS)]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        sent += frames
        await asyncio.sleep(0.1)
        if blowing.done():
            break
    done = await blowing
    assert done["kill"] >= 1, "the storm was none"
    wanted = {frame.id for frame in sent}
    await eventually(lambda: house.seen_ids() >= wanted, within=30, pause=0.05)
    await broker.aclose()
    everything = sorted(seen for report in house.seen() for seen in report)
    assert {seen.id for seen in everything} == wanted
    fresh = [seen.id for seen in everything if not seen.redelivered]
    assert len(fresh) == len(set(fresh)), "a frame came twice, and neither time as a repeat"
    last: dict[str, int] = defaultdict(lambda: -1)
    for seen in everything:
        assert seen.number <= last[seen.key] + 1, f"{seen.key} jumped from {last[seen.key]} to {seen.number}"
        last[seen.key] = max(last[seen.key], seen.number)


async def test_kill_9_of_publishers_keeps_every_acknowledged_frame(house: House) -> None:
    broker = house.broker()
    await broker.ensure(Topology(topics=[house.topic], groups={"reader": [house.topic]}))
    for _ in range(3):
        house.start("publisher")
    await eventually(
        lambda: all(len(lines) > 50 for lines in house.lines("publisher")) and len(house.lines("publisher")) == 3,
        within=30,
    )
    while house.running:
        await asyncio.to_thread(house.end, 0, signal.SIGKILL)
    accepted = {id_ for lines in house.lines("publisher") for id_ in lines}
    stream = await broker.subscribe("reader", [house.topic])
    stored: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    found: set[str] = set()
    while batch := await stream.receive(500, 1.0):
        for delivery in batch:
            found.add(delivery.frame.id)
            stored[delivery.frame.id.split("-")[0], delivery.frame.key].append(int(delivery.frame.body.split()[0]))
        await stream.ack(batch)
    await broker.aclose()
    assert accepted <= found
    assert all(numbers == sorted(numbers) for numbers in stored.values())


async def test_a_paused_member_is_replaced_and_its_late_acks_change_nothing(house: House) -> None:
    broker = house.broker()
    await broker.ensure(Topology(topics=[house.topic], groups={"g": [house.topic]}))
    house.start("member")
    first = [Frame(topic=house.topic, id=new_id(), key=f"k{n % 8}", body=b"%d" % (n // 8)) for n in range(400)]
    await broker.publish(first)
    await eventually(lambda: len(house.seen_ids()) >= 40, within=20)
    (sleeper,) = house.running
    sleeper.send_signal(signal.SIGSTOP)
    house.start("member")
    await eventually(lambda: house.seen_ids() >= {frame.id for frame in first}, within=20, pause=0.05)
    sleeper.send_signal(signal.SIGCONT)
    more = [Frame(topic=house.topic, id=new_id(), key=f"k{n % 8}", body=b"%d" % (50 + n // 8)) for n in range(80)]
    await broker.publish(more)
    await eventually(lambda: house.seen_ids() >= {frame.id for frame in more}, within=20, pause=0.05)

    async def acknowledged() -> bool:
        return (await broker.progress("g", [house.topic]))[house.topic].pending == 0

    await eventually(acknowledged, within=20)
    await broker.aclose()
    fresh = [seen.id for report in house.seen() for seen in report if not seen.redelivered]
    assert len(fresh) == len(set(fresh))


async def test_a_member_that_slept_hands_out_nothing_that_another_has_had(house: House) -> None:
    """Frames wait in it when its process stands still; when it wakes up they are not its own any more."""
    broker = house.broker()
    await broker.ensure(Topology(topics=[house.topic], groups={"g": [house.topic]}))
    sleeper = await broker.subscribe("g", [house.topic])
    house.start("member")
    early: set[str] = set()
    async with asyncio.timeout(20):
        while not house.seen_ids():
            frames = [Frame(topic=house.topic, id=new_id(), key=f"k{k}", body=b"0") for k in range(KEYS)]
            early |= {frame.id for frame in frames}
            await broker.publish(frames)
            await sleeper.ack(await sleeper.receive(1000, 0.2))
    frames = [Frame(topic=house.topic, id=new_id(), key=f"k{n % KEYS}", body=b"1") for n in range(10 * KEYS)]
    await broker.publish(frames)
    sent = {frame.id for frame in frames}
    in_hand = await sleeper.receive(1, 5.0)
    await asyncio.sleep(0.2)  # the rest arrives
    before = {delivery.frame.id for delivery in in_hand}
    deadline = time.monotonic() + 60  # RabbitMQ finds a silent member out by its heartbeats
    while not house.seen_ids() >= sent:
        assert time.monotonic() < deadline, "nobody took over"
        time.sleep(0.1)  # noqa: ASYNC251 - the whole process stands still, which is the point
    late = await sleeper.receive(1000, 0.1)
    fresh = {delivery.frame.id for delivery in late if not delivery.redelivered}
    assert before <= early | sent
    assert not fresh & house.seen_ids()
    await broker.aclose()

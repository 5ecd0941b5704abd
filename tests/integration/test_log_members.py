"""Real processes on one log of our own, killed, paused and joined on purpose (faults 2, 12 and 51)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse.broker import Broker, Frame, Topology
from tests.integration.members import House, Seen, housed, storm
from tests.kit.waiting import eventually

KEYS = 40


@pytest.fixture(params=["embedded", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    url = str(tmp_path / "log.db") if request.param == "embedded" else request.getfixturevalue("postgres_url")
    with housed(request.param, url, tmp_path) as house:
        yield house


@pytest_asyncio.fixture
async def broker(house: House) -> AsyncIterator[Broker]:
    broker = house.broker()
    await broker.ensure(Topology(topics=[house.topic], groups={"g": [house.topic]}))
    yield broker
    await broker.aclose()


async def publish_until(stop: asyncio.Event, broker: Broker, topic: str) -> list[str]:
    """Frames of each key are numbered 1, 2, 3 … in their bodies."""
    sent: list[str] = []
    turn = 0
    while not stop.is_set():
        turn += 1
        frames = [Frame(topic=topic, id=f"{turn}-{k}", key=f"k{k}", body=b"%d" % turn) for k in range(KEYS)]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        sent += [frame.id for frame in frames]
        await asyncio.sleep(0.02)
    return sent


@pytest.mark.slow
async def test_a_rebalance_storm_loses_nothing_and_flags_every_repeat(house: House, broker: Broker) -> None:
    stop = asyncio.Event()
    publishing = asyncio.create_task(publish_until(stop, broker, house.topic))
    try:
        moves = await storm(house, most=5, repeats=True)
    finally:
        stop.set()
        sent = set(await publishing)
    house.start("member")
    await eventually(lambda: house.seen_ids() == sent, within=30, pause=0.05)

    reports = house.seen()
    assert moves["kill"] >= 1
    assert moves["leave"] >= 1
    assert sum(1 for report in reports if report) >= 3, "several members did work"
    assert house.repeats > 0, "some were killed with frames in hand, so there were repeats to flag"
    assert_repeats_are_flagged(reports)
    for report in reports:
        assert_keys_in_order(report)
    for process in list(house.running):
        await asyncio.to_thread(house.end, house.running.index(process), signal.SIGTERM)
    assert (await broker.progress("g", [house.topic]))[house.topic].pending == 0


def assert_repeats_are_flagged(reports: list[list[Seen]]) -> None:
    handed_out = set[str]()
    for seen in sorted(seen for report in reports for seen in report):
        assert seen.redelivered or seen.id not in handed_out, f"{seen.id} came again and did not say so"
        handed_out.add(seen.id)


def assert_keys_in_order(report: list[Seen]) -> None:
    """A member sees a key go forward; only a repeat may go back, and then it goes on from there."""
    last: dict[str, int] = {}
    for seen in report:
        if not seen.redelivered and seen.key in last:
            assert seen.number > last[seen.key], f"{seen.key}: {seen.number} after {last[seen.key]}"
        last[seen.key] = seen.number


def all_reported(house: House, publishers: int) -> bool:
    reports = house.lines("publisher")
    return len(reports) == publishers and all(reports)


@pytest.mark.slow
async def test_kill_9_of_publishers_keeps_every_acknowledged_frame(
    house: House, broker: Broker, tmp_path: Path
) -> None:
    rng = random.Random(11)
    for turn in range(1, 6):
        house.start("publisher")
        await eventually(partial(all_reported, house, turn), within=20, pause=0.05)
        await asyncio.sleep(rng.uniform(0.0, 0.1))  # the moment of death is the test, not a wait for something
        await asyncio.to_thread(house.end, 0, signal.SIGKILL)
    acknowledged = {id_ for report in house.lines("publisher") for id_ in report}

    stream = await broker.subscribe("g", [house.topic])
    received: dict[str, bytes] = {}
    while deliveries := await stream.receive(1000, 0):
        received |= {delivery.frame.id: delivery.frame.body for delivery in deliveries}
        await stream.ack(deliveries)
    assert len(acknowledged) > 25
    assert acknowledged <= received.keys()
    assert all(body.split()[1] == id_.encode() * 20 for id_, body in received.items())
    if house.scheme == "embedded":
        with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
async def test_a_paused_member_is_replaced_and_its_late_acks_change_nothing(house: House, broker: Broker) -> None:
    house.start("member")
    await broker.publish([Frame(topic=house.topic, id=f"a{n}", key=f"k{n}", body=b"1") for n in range(KEYS)])
    await eventually(lambda: len(house.seen()) == 1 and len(house.seen()[0]) == KEYS, within=20, pause=0.05)
    os.kill(house.running[0].pid, signal.SIGSTOP)
    await broker.publish([Frame(topic=house.topic, id=f"b{n}", key=f"k{n}", body=b"2") for n in range(KEYS)])
    house.start("member")
    await eventually(
        lambda: len(house.seen()) == 2 and len({s.id for s in house.seen()[1]}) >= KEYS, within=20, pause=0.05
    )
    os.kill(house.running[0].pid, signal.SIGCONT)
    sent = {f"{batch}{n}" for batch in "abc" for n in range(KEYS)}
    await broker.publish([Frame(topic=house.topic, id=f"c{n}", key=f"k{n}", body=b"3") for n in range(KEYS)])
    await eventually(lambda: house.seen_ids() == sent, within=20, pause=0.05)
    assert_repeats_are_flagged(house.seen())
    for report in house.seen():
        assert_keys_in_order(report)

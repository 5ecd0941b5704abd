"""Real processes on one PostgreSQL log, killed, paused and joined on purpose (faults 2, 12 and 51 for this log)."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from posthouse.broker import Frame, Topology
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock

KEYS = 40


class Seen(NamedTuple):
    at: int
    id: str
    key: str
    number: int
    redelivered: bool


class House:
    """The processes of one test and what they reported."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self._reports: dict[int, Path] = {}
        self._count = 0

    def start(self, role: str) -> None:
        self._count += 1
        report = self._folder / f"{role}-{self._count}.txt"
        script = Path(__file__).with_name("postgres_member.py")
        process = subprocess.Popen([sys.executable, str(script), role, self._url, str(report)])
        self._reports[process.pid] = report
        self.running.append(process)

    def end(self, which: int, how: signal.Signals) -> None:
        process = self.running.pop(which)
        deadline = time.monotonic() + 20
        while how == signal.SIGTERM and not self._reports[process.pid].exists():
            assert time.monotonic() < deadline, "a member never came up"
            time.sleep(0.01)
        process.send_signal(how)
        code = process.wait(20)
        assert code == (-how if how == signal.SIGKILL else 0), "a member asked to leave leaves in good order"

    def reports(self, role: str) -> list[list[str]]:
        """The whole lines of each process; a last one that was cut off by a kill does not count."""
        return [path.read_text().split("\n")[:-1] for path in sorted(self._folder.glob(f"{role}-*.txt"))]

    def seen(self) -> list[list[Seen]]:
        return [[parse(line) for line in report] for report in self.reports("member")]

    def seen_ids(self) -> set[str]:
        return {seen.id for report in self.seen() for seen in report}

    @property
    def repeats(self) -> int:
        """How many frames came more than once."""
        ids = [seen.id for report in self.seen() for seen in report]
        return len(ids) - len(set(ids))


def parse(line: str) -> Seen:
    at, id_, key, number, redelivered = line.split(" ")
    return Seen(int(at), id_, key, int(number), redelivered == "1")


@pytest.fixture
def house(postgres_url: str, tmp_path: Path) -> Iterator[House]:
    house = House(postgres_url, tmp_path)
    yield house
    for process in house.running:
        process.kill()
        process.wait()


@pytest.fixture
async def broker(postgres_url: str, house: House) -> AsyncIterator[PostgresBroker]:
    broker = PostgresBroker(postgres_url, clock=SystemClock())
    await broker.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
    yield broker
    await broker.aclose()


async def eventually(condition: Callable[[], bool], *, within: float) -> None:
    async with asyncio.timeout(within):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - other processes cannot set an Event of ours
            await asyncio.sleep(0.05)


async def storm(house: House, rng: random.Random, seconds: float) -> dict[str, int]:
    """About twice a second somebody joins, leaves or is killed; at least one member stays. Goes on until one was killed
    with frames in hand, so that there is a repeat."""
    done: dict[str, int] = defaultdict(int)
    end = time.monotonic() + seconds
    while time.monotonic() < end or (not house.repeats and time.monotonic() < end + 60):
        move = "join" if len(house.running) < 2 else rng.choice(["join", "leave", "kill"])
        if move == "join" and len(house.running) < 5:
            house.start("member")
        elif move != "join":
            how = signal.SIGTERM if move == "leave" else signal.SIGKILL
            await asyncio.to_thread(house.end, rng.randrange(len(house.running)), how)
        done[move] += 1
        await asyncio.sleep(rng.uniform(0.3, 0.8))
    return done


async def publish_until(stop: asyncio.Event, broker: PostgresBroker) -> list[str]:
    """Frames of each key are numbered 1, 2, 3 … in their bodies."""
    sent: list[str] = []
    turn = 0
    while not stop.is_set():
        turn += 1
        frames = [Frame(topic="t", id=f"{turn}-{k}", key=f"k{k}", body=b"%d" % turn) for k in range(KEYS)]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        sent += [frame.id for frame in frames]
        await asyncio.sleep(0.02)
    return sent


@pytest.mark.slow
async def test_a_rebalance_storm_loses_nothing_and_flags_every_repeat(house: House, broker: PostgresBroker) -> None:
    stop = asyncio.Event()
    publishing = asyncio.create_task(publish_until(stop, broker))
    try:
        moves = await storm(house, random.Random(7), seconds=8)
    finally:
        stop.set()
        sent = set(await publishing)
    house.start("member")
    await eventually(lambda: house.seen_ids() == sent, within=30)

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
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


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
    reports = house.reports("publisher")
    return len(reports) == publishers and all(reports)


@pytest.mark.slow
async def test_kill_9_of_publishers_keeps_every_acknowledged_frame(house: House, broker: PostgresBroker) -> None:
    rng = random.Random(11)
    for turn in range(1, 6):
        house.start("publisher")
        await eventually(partial(all_reported, house, turn), within=20)
        await asyncio.sleep(rng.uniform(0.0, 0.1))  # the moment of death is the test, not a wait for something
        await asyncio.to_thread(house.end, 0, signal.SIGKILL)
    acknowledged = {id_ for report in house.reports("publisher") for id_ in report}

    stream = await broker.subscribe("g", ["t"])
    received = set[str]()
    while deliveries := await stream.receive(1000, 0):
        received |= {delivery.frame.id for delivery in deliveries}
        await stream.ack(deliveries)
    assert len(acknowledged) > 25
    assert acknowledged <= received


@pytest.mark.slow
async def test_a_paused_member_is_replaced_and_its_late_acks_change_nothing(
    house: House, broker: PostgresBroker
) -> None:
    house.start("member")
    await broker.publish([Frame(topic="t", id=f"a{n}", key=f"k{n}", body=b"1") for n in range(KEYS)])
    await eventually(lambda: len(house.seen()) == 1 and len(house.seen()[0]) == KEYS, within=20)
    os.kill(house.running[0].pid, signal.SIGSTOP)
    await broker.publish([Frame(topic="t", id=f"b{n}", key=f"k{n}", body=b"2") for n in range(KEYS)])
    house.start("member")
    await eventually(lambda: len(house.seen()) == 2 and len({s.id for s in house.seen()[1]}) >= KEYS, within=20)
    os.kill(house.running[0].pid, signal.SIGCONT)
    sent = {f"{batch}{n}" for batch in "abc" for n in range(KEYS)}
    await broker.publish([Frame(topic="t", id=f"c{n}", key=f"k{n}", body=b"3") for n in range(KEYS)])
    await eventually(lambda: house.seen_ids() == sent, within=20)
    assert_repeats_are_flagged(house.seen())
    for report in house.seen():
        assert_keys_in_order(report)

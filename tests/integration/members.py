"""Processes on one broker, which are killed, paused and joined on purpose, and what they report."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from posthouse.broker import Broker
from posthouse.clock import new_id
from tests.integration.broker_member import opened_broker
from tests.kit.long import LONG
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]


class Seen(NamedTuple):
    at: int
    id: str
    key: str
    number: int
    redelivered: bool


class House:
    """The processes of one test and what they reported."""

    def __init__(self, scheme: str, url: str, folder: Path) -> None:
        self.scheme = scheme
        self.topic = f"members{new_id()[-8:]}"
        self.running: list[subprocess.Popen[bytes]] = []
        self._url = url
        self._folder = folder
        self._reports: dict[int, Path] = {}
        self._count = 0

    def broker(self) -> Broker:
        return opened_broker(self.scheme, self._url)

    def start(self, role: str) -> None:
        self._count += 1
        report = self._folder / f"{role}-{self._count}.txt"
        command = ["-m", "tests.integration.broker_member", role, self.scheme, self._url, self.topic, str(report)]
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT)
        self._reports[process.pid] = report
        self.running.append(process)

    def end(self, which: int, how: signal.Signals) -> None:
        process = self.running.pop(which)
        if how == signal.SIGTERM:
            until(self._reports[process.pid].exists, "the start of a member", within=20)
        process.send_signal(how)
        code = process.wait(20)
        assert code == (-how if how == signal.SIGKILL else 0), "a member asked to leave leaves in good order"

    def lines(self, role: str) -> list[list[str]]:
        """The whole lines of each process; a last one that was cut off by a kill does not count."""
        return [path.read_text().split("\n")[:-1] for path in sorted(self._folder.glob(f"{role}-*.txt"))]

    def seen(self) -> list[list[Seen]]:
        return [[_parsed(line) for line in lines] for lines in self.lines("member")]

    def seen_ids(self) -> set[str]:
        return {seen.id for report in self.seen() for seen in report}

    @property
    def repeats(self) -> int:
        """How many frames came more than once."""
        ids = [seen.id for report in self.seen() for seen in report]
        return len(ids) - len(set(ids))


def _parsed(line: str) -> Seen:
    at, id_, key, number, redelivered = line.split(" ")
    return Seen(int(at), id_, key, int(number), redelivered == "1")


@contextlib.contextmanager
def housed(scheme: str, url: str, folder: Path) -> Iterator[House]:
    house = House(scheme, url, folder)
    yield house
    for process in house.running:
        process.kill()
        process.wait()


async def storm(house: House, *, most: int, repeats: bool) -> dict[str, int]:
    """About twice a second somebody joins, leaves or is killed; at least one member stays. On a busy machine it lasts
    until somebody was killed, with frames in hand where there must be `repeats`, or a minute longer."""
    rng, done = random.Random(7), defaultdict[str, int](int)
    end = time.monotonic() + (8.0 if LONG else 4.0)
    while time.monotonic() < end or (time.monotonic() < end + 60 and not (house.repeats if repeats else done["kill"])):
        move = "join" if len(house.running) < 2 else rng.choice(["join", "leave", "kill"])
        if move == "join" and len(house.running) < most:
            house.start("member")
        elif move != "join":
            how = signal.SIGTERM if move == "leave" else signal.SIGKILL
            await asyncio.to_thread(house.end, rng.randrange(len(house.running)), how)
        done[move] += 1
        await asyncio.sleep(rng.uniform(0.3, 0.8))
    return done

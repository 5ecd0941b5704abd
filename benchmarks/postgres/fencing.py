"""Order per key while three relays are paused, killed and fenced: asserted, not timed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.byhand import TOPIC
from benchmarks.postgres.backlog import rows
from benchmarks.postgres.server import BenchServer
from benchmarks.postgres.shop import orders_on
from benchmarks.reading import Reading, Scale, at_most, figure
from posthouse.app import app_of
from posthouse.broker import Broker, Delivery, Frame, Verdict
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock
from posthouse.sending import RelaySettings
from posthouse.stores.postgres import PostgresStore

SCHEMA = "log"
KEYS = 50
LEASE = 1.0
"""Seconds; a relay that is paused for longer finds its shards with another."""
PAUSE = 1.6
WRITERS = 4
PATIENCE = 60.0
FENCED = b"lost its shards"
"""What a relay says when it finds out."""


class DistantBroker(PostgresBroker):
    """Its answers take a while, so that trouble mostly comes between a publish and its settling: the worst moment."""

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        verdicts = await super().publish(frames)
        await asyncio.sleep(0.05)
        return verdicts


class Sequenced(msgspec.Struct):
    """What is looked at of an event in the log."""

    subject: str
    sequence: str


class Relays:
    """Three processes, one of which is always in trouble."""

    def __init__(self, url: str, errors: Path) -> None:
        self._command = [sys.executable, "-m", "benchmarks.postgres.fencing", url]
        self._errors = errors
        self._children: list[asyncio.subprocess.Process] = []
        self.paused = self.killed = 0

    async def start(self) -> None:
        """One more, once it is at work."""
        with self._errors.open("ab") as output:
            child = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE, stderr=output)
        assert child.stdout is not None
        self._children.append(child)
        if not await child.stdout.readline():
            raise RuntimeError(f"a relay did not start: {self._errors.read_text()}")

    async def trouble(self, stop: asyncio.Event) -> None:
        """In turns: pause one for longer than its lease, kill one and start another."""
        for turn in itertools.count():
            if stop.is_set():
                return
            child = self._children.pop(0)
            if turn % 2:
                child.kill()
                await child.wait()
                await self.start()
                self.killed += 1
                await asyncio.sleep(LEASE / 2)
            else:
                child.send_signal(signal.SIGSTOP)
                await asyncio.sleep(PAUSE)
                child.send_signal(signal.SIGCONT)
                self._children.append(child)
                self.paused += 1

    async def end(self) -> None:
        """All of them, in their own time."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
        await asyncio.gather(*(child.wait() for child in self._children))

    @property
    def fenced(self) -> int:
        """How often one of them found its shards with another."""
        return self._errors.read_bytes().count(FENCED)


async def order(server: BenchServer, scale: Scale) -> list[Reading]:
    """Three relays that are paused, killed and fenced: every key in order in the log, nothing lost."""
    seconds = scale.seconds(12.0)
    async with server.prepared() as url:
        broker = PostgresBroker(url, clock=SystemClock(), schema=SCHEMA)
        with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
            relays = Relays(url, Path(folder) / "errors")
            count = await _run(url, broker, relays, seconds)
            found = await logged(broker, count)
            fenced = relays.fenced
        await broker.aclose()
    inverted, lost = faults(found, count)
    if not fenced:
        raise RuntimeError("no relay was fenced in all that time: this run shows nothing")
    if inverted or lost:
        raise RuntimeError(f"{inverted:,} of {count:,} events out of order, {lost:,} lost")
    told = f"{count:,} events, {relays.paused} pauses, {relays.killed} kills, {fenced} fenced"
    return [
        at_most(f"order, three relays: {told}: inverted", inverted, 0.0, "of them"),
        at_most("order, three relays: lost", lost, 0.0, "of them"),
        figure("order, three relays: sent twice", len(found) - count, "events"),
    ]


async def _run(url: str, broker: Broker, relays: Relays, seconds: float) -> int:
    """Publish for a while, at least until one relay was fenced, then let them finish; how many events there were."""
    stop = asyncio.Event()
    await asyncio.gather(*(relays.start() for _ in range(3)))
    troubling = asyncio.create_task(relays.trouble(stop))
    try:
        began = time.monotonic()
        count = await published(url, lambda: time.monotonic() > began + seconds and relays.fenced > 0)
        stop.set()
        await troubling
        await _settled(broker, count)
        return count
    finally:
        stop.set()
        await troubling
        await relays.end()


async def published(url: str, enough: Callable[[], bool]) -> int:
    """Writers side by side on the same keys, in transactions of different lengths; how many events there were."""
    store = PostgresStore(url, writers=WRITERS)
    until, numbers = time.monotonic() + PATIENCE, itertools.count()

    async def write(pause: float) -> int:
        written = 0
        while not enough() and time.monotonic() < until:
            first = next(numbers) * 5
            async with store.begin() as tx:
                await store.outbox.append(tx, rows(first, first + 5, KEYS))
                await asyncio.sleep(pause)
            written += 5
        return written

    total = sum(await asyncio.gather(*(write(0.002 * writer) for writer in range(WRITERS))))
    await store.aclose()
    return total


async def _settled(broker: Broker, count: int) -> None:
    """Wait until the log has at least so many: those sent twice are on top, so the reader waits for the rest."""
    deadline = time.monotonic() + PATIENCE
    while (stored := (await broker.progress("nobody", [TOPIC]))[TOPIC].stored) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the relays sent {stored:,} of {count:,} events in {PATIENCE:g} s")
        await asyncio.sleep(0.1)


async def logged(broker: Broker, count: int) -> Sequence[Delivery]:
    """Everything in the log, in its order."""
    stream = await broker.subscribe("reader", [TOPIC], window=1_000_000)
    found: list[Delivery] = []
    while batch := await stream.receive(10_000, 2.0):
        found += batch
    await stream.aclose()
    return found


def faults(found: Sequence[Delivery], count: int) -> tuple[int, int]:
    """How many events came first after a later one of their key, and how many never came. Repeats are allowed."""
    highest: defaultdict[str, int] = defaultdict(int)
    seen: set[tuple[str, int]] = set()
    inverted = 0
    for delivery in found:
        event = msgspec.json.decode(delivery.frame.body, type=Sequenced)
        key, number = event.subject, int(event.sequence)
        if (key, number) in seen:
            continue
        seen.add((key, number))
        inverted += number != highest[key] + 1
        highest[key] = max(highest[key], number)
    return inverted, count - len(seen)


async def _relay(url: str) -> None:
    """The other processes."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    distant = DistantBroker(url, clock=SystemClock(), schema=SCHEMA)
    orders = orders_on(url, distant, relay=RelaySettings(lease=LEASE, batch=100))
    await app_of(orders).opened.prepare()
    print("ready", flush=True)
    await orders.run(only=["relay"], stop=stop)
    await orders.aclose()


if __name__ == "__main__":
    asyncio.run(_relay(sys.argv[1]))

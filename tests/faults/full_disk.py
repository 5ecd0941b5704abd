"""Fills a disk with an embedded log, run by `test_log_disk_full.py` in a process of its own.

`full_disk.py tmpfs <folder>` mounts a small file system of its own there; needs a mount namespace (`unshare -rm`).
`full_disk.py limit <folder>` lowers the largest size a file of this process may have.
Every claim is checked here; the last line printed is `done` when all of them held.
"""

import asyncio
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from posthouse.broker import Delivery, Frame, Stream, Topology
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerUnavailable

MEBIBYTE = 1024 * 1024


async def publish(broker: EmbeddedBroker) -> set[str]:
    frames = [Frame(topic="t", id=new_id(), key=f"k{n}", body=bytes(20_000)) for n in range(4)]
    verdicts = await broker.publish(frames)
    assert all(verdict.accepted for verdict in verdicts)
    return {frame.id for frame in frames}


async def fill(broker: EmbeddedBroker) -> tuple[set[str], str]:
    """Publish until it is refused: what was accepted, and what the refusal said."""
    accepted: set[str] = set()
    for _ in range(1000):
        try:
            accepted |= await publish(broker)
        except BrokerUnavailable as refusal:
            return accepted, str(refusal)
    raise AssertionError("the disk never got full")


async def receive_all(stream: Stream) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while batch := await stream.receive(50, 0.5):
        deliveries += batch
    return deliveries


async def run(log: Path, expected: str, make_room: Callable[[], None]) -> None:
    broker = EmbeddedBroker(log, clock=SystemClock())
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"])
    accepted, refusal = await fill(broker)
    assert accepted
    assert str(log) in refusal, refusal
    assert expected in refusal, refusal

    deliveries = await receive_all(stream)
    assert {delivery.frame.id for delivery in deliveries} == accepted, "reads work, and no refused frame is there"
    assert (await broker.progress("g", ["t"]))["t"].stored == len(accepted)

    make_room()
    accepted |= await publish(broker)
    await stream.ack(deliveries)
    deliveries = await receive_all(stream)
    assert len(deliveries) == 4, "it goes on where it was"
    await stream.ack(deliveries)
    progress = (await broker.progress("g", ["t"]))["t"]
    assert (progress.stored, progress.pending) == (len(accepted), 0)
    await broker.aclose()
    connection = sqlite3.connect(log)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def on_tmpfs(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)], check=True)
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(MEBIBYTE))
    asyncio.run(run(folder / "log.db", "disk is full", ballast.unlink))


def under_limit(folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEBIBYTE, hard))
    asyncio.run(run(folder / "log.db", "I/O error", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))))


if __name__ == "__main__":
    {"tmpfs": on_tmpfs, "limit": under_limit}[sys.argv[1]](Path(sys.argv[2]))
    print("done")

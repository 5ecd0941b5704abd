"""What the archive costs: events of 1 KiB into files in a folder, beside pyarrow alone writing the same columns."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reading import Reading, Scale, compare
from posthouse.broker import Broker, Delivery, Frame
from posthouse.clock import SystemClock, new_id
from posthouse.events import STRUCTURED, Event, timestamp
from posthouse.history.archive.archiver import Archiver
from posthouse.history.archive.places import open_place
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.stores.sqlite import SqliteStore

TOPIC, KEYS, BYTES = "shop.orders.order", 1000, 1024
MOST_MIB = 200.0
HEX = 700
"""Characters of each payload that no compression makes much of."""


def frames(count: int) -> Iterator[Delivery]:
    """Events as a broker brings them, made as they are asked for."""
    event = Event(
        id="ID" * 18, type=f"{TOPIC}.placed.v1", source="/shop/orders", data=b'{"note":"NOTE"}', time=timestamp(1.8e9), tenant="t1",
        key="KEY", sequence=1,
    )  # fmt: skip
    encoded = STRUCTURED.encode(event)
    headers, body = dict(encoded.headers), encoded.body
    for number in range(count):
        id, key = f"{number:036d}", f"k{number % KEYS}"
        note = hashlib.shake_128(number.to_bytes(8, "big")).hexdigest(HEX // 2).encode()
        data = body.replace(b"ID" * 18, id.encode()).replace(b"KEY", key.encode()).replace(b"NOTE", note)
        frame = Frame(topic=TOPIC, id=id, key=f"t1:{key}", headers=headers, body=data)
        yield Delivery(frame=frame, position=number, stored_at=time.time())


class Source:
    """A broker that has so many events and nothing else."""

    def __init__(self, count: int) -> None:
        self.left, self._frames, self.empty = count, frames(count), asyncio.Event()

    async def subscribe(self, *_: Any, **__: Any) -> Source:
        return self

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        found = [delivery for _, delivery in zip(range(min(limit, 1000)), self._frames, strict=False)]
        if not found:
            await asyncio.sleep(0.01)
        return found

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self.left -= len(deliveries)
        if not self.left:
            self.empty.set()

    async def aclose(self) -> None:
        """Nothing is open."""


async def archived(folder: Path, count: int) -> float:
    """Seconds for so many events, from the broker to the acknowledgement."""
    clock, source = SystemClock(), Source(count)
    store = SqliteStore(folder / f"{new_id()}.db", clock=clock)
    await store.upgrade()
    place = open_place(f"file://{folder}/{new_id()}")
    archiver = Archiver(
        "shop.archive", [TOPIC], cast(Broker, source), place, store.archives, clock, member="one",
        settings=ArchiveSettings(every=0.5),
    )  # fmt: skip
    stop = asyncio.Event()
    began = time.perf_counter()
    running = asyncio.create_task(archiver.run(stop))
    await asyncio.wait([running, asyncio.create_task(source.empty.wait())], return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - began
    stop.set()
    await running
    await store.aclose()
    return seconds


async def bare(folder: Path, count: int) -> float:
    """Seconds for pyarrow alone to write the same bodies with their ids and keys, forced to the disk file by file."""
    began = time.perf_counter()
    waiting, each = frames(count), 20_000
    while part := [delivery for _, delivery in zip(range(each), waiting, strict=False)]:
        await asyncio.to_thread(_write, folder / f"{new_id()}.parquet", part)
    return time.perf_counter() - began


def _write(path: Path, part: Sequence[Delivery]) -> None:
    table = pa.table(
        {
            "id": [each.frame.id for each in part],
            "key": [each.frame.key for each in part],
            "position": [each.position for each in part],
            "received": [each.stored_at for each in part],
            "body": [each.frame.body for each in part],
        }
    )
    with path.open("wb") as file:
        pq.write_table(table, file, compression="zstd", compression_level=1)
        file.flush()
        os.fsync(file.fileno())


async def archiving(folder: Path, scale: Scale) -> list[Reading]:
    """The rate, and the most memory of a process that does nothing else."""
    count = scale.count(60_000)

    async def ours(number: int) -> float:
        return await archived(folder, count)

    async def limit(number: int) -> float:
        return await bare(folder, count)

    reading = await compare("archive 1 KiB", ours, limit, rounds=scale.turns(3), count=count)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.archiving", str(folder), str(2 * count), stdout=asyncio.subprocess.PIPE
    )
    most = msgspec.json.decode((await process.communicate())[0], type=float)
    return [
        reading,
        Reading(
            measure="archive, memory",
            ours=most,
            limit=None,
            ratio=None,
            goal=MOST_MIB,
            met=most <= MOST_MIB,
            unit="MiB",
        ),
    ]


def _most_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    asyncio.run(archived(Path(sys.argv[1]), int(sys.argv[2])))
    print(_most_mib())

"""Whether memory stays flat while a long backlog drains through relay and consumer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks import byhand
from benchmarks.latency import running
from benchmarks.reading import Reading, Scale, at_most
from benchmarks.shop import KEYS, TENANT, Done, OrderPlaced, billing_in, orders_in
from posthouse.app import app_of
from posthouse.store import shard_of

INSERT = """
INSERT INTO posthouse_outbox (shard, topic, tenant, key, sequence, event_id, headers, body, written_at, lineage)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)
"""

MIB = 1024 * 1024
PATIENCE = 150.0
"""Seconds after which the drain is ended, wherever it is."""


async def memory(folder: Path, scale: Scale) -> list[Reading]:
    """Drain a backlog of small events through relay and consumer, in a process of its own."""
    count = scale.count(1_000_000)
    orders = orders_in(folder)
    await app_of(orders).open()
    await orders.aclose()
    with closing(byhand.opened(folder / "orders.db", "NORMAL")) as store:
        store.execute("BEGIN IMMEDIATE")
        store.executemany(INSERT, _backlog(count))
        store.execute("COMMIT")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.memory", str(folder), str(count), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    found = json.loads(output)
    drained, growth, rate = found["drained"], found["growth"], found["rate"]
    return [
        at_most("memory growth", growth, 30.0, "MiB"),
        Reading(
            measure="memory drained",
            ours=drained,
            limit=None,
            ratio=None,
            goal=count,
            met=drained >= count,
            unit="events",
        ),
        Reading(measure="memory drain", ours=rate, limit=None, ratio=None, goal=None, met=None, unit="events/s"),
    ]


def _backlog(count: int) -> Iterator[tuple[object, ...]]:
    """Rows of the outbox, as if they had been published."""
    shards = [shard_of(TENANT, f"o{key}", byhand.SHARDS) for key in range(KEYS)]
    for number in range(count):
        key = f"o{number % KEYS}"
        event_id, body = byhand.envelope(OrderPlaced(order_id=key, total_cents=number, note=""))
        shard, sequence = shards[number % KEYS], number // KEYS + 1
        yield shard, byhand.TOPIC, TENANT, key, sequence, event_id, byhand.HEADERS, body


async def _drain(folder: Path, count: int) -> dict[str, float]:
    """The other process: events drained, growth in MiB from a tenth of the backlog on, and events per second."""
    done = Done(count)
    samples: list[tuple[int, float]] = []
    began = time.perf_counter()
    async with running(orders_in(folder), billing_in(folder, "list", done)):
        while not done.stop.is_set() and time.perf_counter() < began + PATIENCE:
            await asyncio.sleep(0.25)
            samples.append((count - done.left, resident()))
            _show_progress(samples, count)
    took = time.perf_counter() - began
    later = [mib for drained, mib in samples if drained >= count / 10] or [resident()]
    drained = count - done.left
    return {"drained": drained, "growth": max(later) - later[0], "rate": drained / took}


def _show_progress(samples: list[tuple[int, float]], count: int) -> None:
    """A line for every tenth."""
    before = samples[-2][0] if len(samples) > 1 else 0
    drained, mib = samples[-1]
    if drained * 10 // count > before * 10 // count:
        print(f"  {drained:,} of {count:,} events, {mib:.1f} MiB", file=sys.stderr, flush=True)


def resident() -> float:
    """MiB of memory in use by this process."""
    with open("/proc/self/statm", encoding="ascii") as figures:
        return int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_drain(Path(sys.argv[1]), int(sys.argv[2])))))

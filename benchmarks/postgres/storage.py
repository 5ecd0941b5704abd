"""What a relay leaves behind: write-ahead log for each event, disk after cleanup, memory and speed under a long backlog."""

from __future__ import annotations

import asyncio
import json
import sys

import asyncpg

from benchmarks.memory import resident
from benchmarks.postgres.backlog import drained, fill, rewind
from benchmarks.postgres.server import BenchServer, run
from benchmarks.postgres.shop import orders_on
from benchmarks.postgres.sink import NowhereBroker
from benchmarks.reading import Reading, Scale, at_most, figure
from benchmarks.shop import KEYS
from posthouse.app import app_of

MIB = 1024 * 1024
SMALL, LARGE, BIG = 100_000, 1_000_000, 10_000_000

# Where the server's log ends.
END_OF_LOG = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"

# The bytes of all tables and indexes of the store.
DISK = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'posthouse' AND c.relkind = 'r'
"""


async def wal(server: BenchServer, scale: Scale) -> list[Reading]:
    """Bytes of write-ahead log for each event that the relay sends, on a server with nothing else to do."""
    count = scale.count(200_000)
    async with server.prepared() as url:
        await fill(url, count, keys=KEYS)
        await rewind(url)
        # Marks of readers on fresh pages are logged once where checksums are on: that is the writer's debt, paid here.
        await run(url, "VACUUM")
        await run(url, "CHECKPOINT")
        before = await asked(url, END_OF_LOG)
        await drained(url, count)
        written = await asked(url, END_OF_LOG) - before
    return [at_most("WAL of the relay", written / count, 1.0, "bytes per event")]


async def backlog(server: BenchServer, scale: Scale) -> list[Reading]:
    """A long backlog beside one of a tenth: speed, memory, and the disk after cleanup."""
    return await _backlog(server, scale.count(SMALL), scale.count(LARGE))


async def backlog_big(server: BenchServer, scale: Scale) -> list[Reading]:
    """10,000,000 rows beside 100,000: speed, memory, and the disk after cleanup. Takes half an hour."""
    return await _backlog(server, scale.count(SMALL), scale.count(BIG))


async def _backlog(server: BenchServer, small: int, large: int) -> list[Reading]:
    async with server.prepared() as url:
        await fill(url, small, keys=KEYS)
        short = await drained_elsewhere(url, small)
    async with server.prepared() as url:
        began_at = await asked(url, DISK)
        await fill(url, large, keys=KEYS)
        filled_at = await asked(url, DISK)
        long = await drained_elsewhere(url, large)
        await cleaned(url)
        ended_at = await asked(url, DISK)
    name = f"backlog {large:,}"
    ratio = long["rate"] / short["rate"]
    return [
        Reading(
            measure=f"{name} ÷ {small:,} rows",
            ours=long["rate"],
            limit=short["rate"],
            ratio=ratio,
            goal=0.8,
            met=ratio >= 0.8,
            unit="events/s",
        ),
        at_most(f"{name} memory above {small:,}", long["peak"] - short["peak"], 30.0, "MiB"),
        figure(f"{name} disk at its height", (filled_at - began_at) / large, "bytes per event"),
        at_most(f"{name} disk after cleanup", (ended_at - began_at) / MIB, 10.0, "MiB"),
    ]


async def asked(url: str, question: str) -> int:
    """One number from the server."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(question))
    finally:
        await connection.close()


async def drained_elsewhere(url: str, count: int) -> dict[str, float]:
    """Drain in a process of its own: events per second, and the MiB it had at its height."""
    command = [sys.executable, "-m", "benchmarks.postgres.storage", url, str(count)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    found: dict[str, float] = json.loads(output)
    return found


async def cleaned(url: str) -> None:
    """What housekeeping does, until it has nothing more to do."""
    orders = orders_on(url, NowhereBroker(0))
    runtime = await app_of(orders).opened.prepare()
    while await runtime.relay.step():
        pass
    await runtime.tidy()
    await orders.aclose()


async def _drain(url: str, count: int) -> dict[str, float]:
    """The other process."""
    peak = resident()

    async def watch() -> None:
        nonlocal peak
        while True:
            await asyncio.sleep(0.05)
            peak = max(peak, resident())

    watching = asyncio.create_task(watch())
    took = await drained(url, count)
    watching.cancel()
    return {"rate": count / took, "peak": peak}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_drain(sys.argv[1], int(sys.argv[2])))))

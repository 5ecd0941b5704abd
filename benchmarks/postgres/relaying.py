"""The way out: a backlog of the outbox, sent nowhere, beside the same driver without any bookkeeping."""

from __future__ import annotations

import time
from collections.abc import Sequence

import asyncpg

from benchmarks.postgres.backlog import HEADERS, drained, fill, rewind
from benchmarks.postgres.server import BenchServer, run
from benchmarks.postgres.sink import NowhereBroker
from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import KEYS
from posthouse.broker import Frame

ROWS = 200_000
BATCH = 500

# A table as people write it by hand, with the same rows.
PLAIN = """
CREATE TABLE plain AS SELECT id, topic, tenant, key, event_id, body, NULL::timestamptz AS sent_at FROM posthouse.outbox;
ALTER TABLE plain ADD PRIMARY KEY (id);
CREATE INDEX plain_unsent ON plain (id) WHERE sent_at IS NULL;
ANALYZE plain;
"""
PAGE = "SELECT id, topic, tenant, key, event_id, body FROM plain WHERE id > $1 ORDER BY id LIMIT $2"
UNSENT = """
SELECT id, topic, tenant, key, event_id, body FROM plain WHERE sent_at IS NULL ORDER BY id LIMIT 100
FOR UPDATE SKIP LOCKED
"""
SENT = "UPDATE plain SET sent_at = now() WHERE id = $1"


async def relay(server: BenchServer, scale: Scale) -> list[Reading]:
    """Drain 200,000 rows: beside the driver without bookkeeping, and beside a relay with an UPDATE for each row."""
    count, few = scale.count(ROWS), scale.count(5_000)
    async with server.prepared() as url:
        await fill(url, count, keys=KEYS)
        await run(url, PLAIN)
        await run(url, "VACUUM ANALYZE")

        async def ours(_: int) -> float:
            await rewind(url)
            return await drained(url, count)

        async def bare(_: int) -> float:
            return await fetched(url, count)

        async def naive(_: int) -> float:
            return await sent_row_by_row(url, few) * count / few

        return [
            await compare("relay ÷ driver alone", ours, bare, rounds=scale.turns(3), count=count, goal=0.6),
            await compare("relay ÷ update per row", ours, naive, rounds=scale.turns(2), count=count, goal=20.0),
        ]


async def one_key(server: BenchServer, scale: Scale) -> list[Reading]:
    """Drain 200,000 rows of one key beside as many of a thousand keys."""
    count = scale.count(ROWS)
    async with server.prepared() as narrow, server.prepared() as wide:
        await fill(narrow, count, keys=1)
        await fill(wide, count, keys=KEYS)
        for url in (narrow, wide):
            await run(url, "VACUUM ANALYZE")

        async def ours(_: int) -> float:
            await rewind(narrow)
            return await drained(narrow, count)

        async def theirs(_: int) -> float:
            await rewind(wide)
            return await drained(wide, count)

        name = "relay one key ÷ 1,000 keys"
        return [await compare(name, ours, theirs, rounds=scale.turns(3), count=count, goal=0.7)]


async def fetched(url: str, count: int) -> float:
    """The seconds for the unavoidable: read page by page, make frames, hand them over."""
    connection = await asyncpg.connect(url)
    sink = NowhereBroker(count)
    last = 0
    began = time.perf_counter()
    while page := await connection.fetch(PAGE, last, BATCH):
        await sink.publish(frames_of(page))
        last = page[-1]["id"]
    took = time.perf_counter() - began
    await connection.close()
    return took


async def sent_row_by_row(url: str, count: int) -> float:
    """The seconds for a relay that takes a hundred rows, publishes and updates each, and commits."""
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE plain SET sent_at = NULL WHERE sent_at IS NOT NULL")
    await connection.execute("VACUUM plain")
    sink = NowhereBroker(count)
    began = time.perf_counter()
    while not sink.done.is_set():
        async with connection.transaction():
            for row in await connection.fetch(UNSENT):
                await sink.publish(frames_of([row]))
                await connection.execute(SENT, row["id"])
    took = time.perf_counter() - began
    await connection.close()
    return took


def frames_of(page: Sequence[asyncpg.Record]) -> list[Frame]:
    """What a broker takes."""
    return [
        Frame(topic=topic, id=event_id, body=body, key=f"{tenant}:{key}", headers=HEADERS)
        for _, topic, tenant, key, event_id, body in page
    ]

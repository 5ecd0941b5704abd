"""The way in: exactly once and in order, from frames in memory to one business row for each event in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from zlib import crc32

import asyncpg
import msgspec

from benchmarks.byhand import GROUP, TOPIC, decode, envelope
from benchmarks.postgres.server import BenchServer
from benchmarks.postgres.shop import BUSINESS, billing_on
from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import KEYS, TENANT, Done, OrderPlaced
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker, MemoryLog, Stored
from posthouse.clock import SystemClock
from posthouse.stores.postgres import PostgresStore

CONNECTIONS = 8
PATIENCE = 120.0
"""Seconds after which a round that has not come to its end is given up."""
HEADERS = {"content-type": "application/cloudevents+json"}

INBOX = """
CREATE TABLE IF NOT EXISTS inbox (
    consumer text NOT NULL, event_id text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id))
"""
CLAIM = "INSERT INTO inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"


async def consume(server: BenchServer, scale: Scale) -> list[Reading]:
    """Ordered, once only: single, grouped and list handlers beside a transaction for each event by hand."""
    return [
        await _consume(server, scale, "single", count=3_000, goal=0.9),
        await _consume(server, scale, "grouped", count=10_000, goal=3.0),
        await _consume(server, scale, "list", count=20_000, goal=8.0),
    ]


async def _consume(server: BenchServer, scale: Scale, kind: str, *, count: int, goal: float) -> Reading:
    """The loop by hand has fewer events than ours: its rate does not depend on the number."""
    count, by_hand = scale.count(count), scale.count(3_000)
    ours_frames, their_frames = frames(count, KEYS), frames(by_hand, KEYS)
    async with server.prepared() as original:

        async def ours(_: int) -> float:
            with server.copied(original) as url:
                return await consumed(url, kind, ours_frames)

        async def theirs(_: int) -> float:
            with server.copied(original) as url:
                return await consumed_by_hand(url, their_frames) * count / by_hand

        rounds = scale.turns(5)
        return await compare(f"consume {kind}", ours, theirs, rounds=rounds, count=count, goal=goal)


async def one_key(server: BenchServer, scale: Scale) -> list[Reading]:
    """List handlers, ordered, with every event on one key beside a thousand keys."""
    count = scale.count(10_000)
    narrow, wide = frames(count, 1), frames(count, KEYS)
    async with server.prepared() as original:

        async def round_of(given: Sequence[Frame]) -> float:
            with server.copied(original) as url:
                return await consumed(url, "list", given)

        return [
            await compare(
                "consume list, one key ÷ 1,000 keys",
                lambda _: round_of(narrow),
                lambda _: round_of(wide),
                rounds=scale.turns(3),
                count=count,
                goal=0.5,
            )
        ]


def frames(count: int, keys: int) -> list[Frame]:
    """Events as a producer would have sent them, in order, with the numbers of their keys."""
    return [_frame(number, f"o{number % keys}", number // keys + 1) for number in range(count)]


def _frame(number: int, key: str, sequence: int) -> Frame:
    payload = OrderPlaced(order_id=key, total_cents=number)
    event_id, body = envelope(payload)
    whole = msgspec.structs.replace(decode(body), sequence=f"{sequence:020d}")
    return Frame(topic=TOPIC, id=event_id, body=msgspec.json.encode(whole), key=f"{TENANT}:{key}", headers=HEADERS)


async def consumed(url: str, kind: str, given: Sequence[Frame]) -> float:
    """The seconds that our consumer takes for all of them."""
    log = MemoryLog()
    log.topics[TOPIC] = [Stored(frame, time.time()) for frame in given]
    done = Done(len(given))
    store = PostgresStore(url, writers=CONNECTIONS)
    billing = billing_on(store, MemoryBroker(clock=SystemClock(), log=log), kind, done)
    [consumer] = (await app_of(billing).opened.prepare()).consumers
    await warmed(store)
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        await consumer.run(done.stop)
    took = time.perf_counter() - began
    await billing.aclose()
    await refuse_unless_written(url, len(given))
    return took


async def warmed(store: PostgresStore) -> None:
    """Open the connections: those by hand are open too when the watch starts."""

    async def touch() -> None:
        async with store.begin() as tx:
            await tx.execute("SELECT pg_sleep(0.05)")

    await asyncio.gather(*(touch() for _ in range(store.writers)))


async def consumed_by_hand(url: str, given: Sequence[Frame]) -> float:
    """The obvious way: events of a key to one worker, and for each event BEGIN, claim, write, COMMIT."""
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    await connections[0].execute(INBOX)
    shares: list[list[Frame]] = [[] for _ in connections]
    for frame in given:
        shares[crc32((frame.key or "").encode()) % CONNECTIONS].append(frame)
    began = time.perf_counter()
    await asyncio.gather(*map(_work, connections, shares))
    took = time.perf_counter() - began
    await asyncio.gather(*(connection.close() for connection in connections))
    await refuse_unless_written(url, len(given))
    return took


async def _work(connection: asyncpg.Connection, share: Sequence[Frame]) -> None:
    for frame in share:
        event = decode(frame.body)
        async with connection.transaction():
            if await connection.execute(CLAIM, GROUP, event.id) == "INSERT 0 1":
                await connection.execute(BUSINESS, event.data.order_id, event.data.total_cents)


async def refuse_unless_written(url: str, count: int) -> None:
    """A figure for work that was not done is worth nothing."""
    connection = await asyncpg.connect(url)
    written = await connection.fetchval("SELECT count(*) FROM placed")
    await connection.close()
    if written != count:
        raise RuntimeError(f"{written:,} of {count:,} business rows were written")

"""How close the rebuild of a read model comes to the bare read of the streams that it is made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale, compare
from posthouse import App, Event, Payload, Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.processes import Aggregate, Model, Plan, Projection
from posthouse.stores.postgres import PostgresStore

PAGE = 10_000
PER_STREAM = 10
"""Events of each stream, so far apart as those of all the others lie between."""

# Many streams from one event: its text with other ids, keys and versions.
MULTIPLY = """
INSERT INTO posthouse.stream_event (tenant, aggregate, stream, version, event_id, type, headers, body)
SELECT e.tenant, e.aggregate, 'r' || s.n, v.n, gen_random_uuid()::text, e.type, e.headers,
    convert_to(replace(replace(convert_from(e.body, 'UTF8'), '"streamversion":"1"', '"streamversion":"' || v.n || '"'),
        'r0"', 'r' || s.n || '"'), 'UTF8')
FROM posthouse.stream_event e, generate_series(1, $1) v (n), generate_series(1, $2) s (n) ORDER BY v.n, s.n
"""

# Their last versions, without the one that they were made from.
HEADS = """
INSERT INTO posthouse.stream (tenant, aggregate, stream, version)
SELECT tenant, aggregate, stream, max(version) FROM posthouse.stream_event WHERE stream <> 'r0'
GROUP BY tenant, aggregate, stream
"""

# What a bare read is.
BARE = """
SELECT tenant, aggregate, stream, version, event_id, type, headers, body, position
FROM posthouse.stream_event WHERE position > $1 ORDER BY position LIMIT $2
"""


class RoomPriced(Payload):
    """A room has a price."""

    room_id: str
    price: int
    currency: str
    from_day: str


async def rebuild(server: BenchServer, scale: Scale) -> list[Reading]:
    """A handler that adds up in memory, one that copies a row for each event; beside the store's read of all streams, and
    that beside the driver's."""
    return await _measured(server, scale.count(200_000), scale.turns(3))


async def rebuild_big(server: BenchServer, scale: Scale) -> list[Reading]:
    """The same of a million events."""
    return await _measured(server, scale.count(1_000_000), scale.turns(1))


async def _measured(server: BenchServer, wanted: int, rounds: int) -> list[Reading]:
    async with server.prepared() as url:
        count = await _filled(url, wanted)

        async def bare(_: int) -> float:
            return await _read_bare(url)

        async def pages(_: int) -> float:
            return await _read_pages(url)

        async def folding(_: int) -> float:
            return await _rebuilt(url, _fold, count)

        async def copying(_: int) -> float:
            return await _rebuilt(url, _copy, count)

        return [
            await compare("rebuild, adds up ÷ read_all", folding, pages, rounds=rounds, count=count, goal=0.5),
            await compare("rebuild, a row each ÷ read_all", copying, pages, rounds=rounds, count=count),
            await compare("read_all ÷ bare SELECT", pages, bare, rounds=rounds, count=count),
        ]


class Rooms:
    """A service with one aggregate and a read model of it."""

    def __init__(self, url: str) -> None:
        self.service = Service("rooms")
        App(self.service, store=PostgresStore(url), broker=MemoryBroker(clock=SystemClock()))
        self.service.event("room.priced.v1", key="room_id")(RoomPriced)
        self.book: Aggregate[int, RoomPriced] = self.service.aggregate(
            "room", initial=int, evolve=lambda _, event: event.price, events=(RoomPriced,)
        )
        self.prices: Projection = self.service.projection("prices")


def _fold(rooms: Rooms) -> None:
    """The sum of all prices per currency."""

    @rooms.prices.setup
    async def tables(model: Model) -> None:
        await model.execute(
            f"CREATE TABLE {model.table('total')} (currency text PRIMARY KEY, price bigint, count bigint)"
        )

    @rooms.prices.on(RoomPriced)
    async def fold(events: Sequence[Event[RoomPriced]], model: Model) -> None:
        prices, counts = Counter[str](), Counter[str]()
        for event in events:
            prices[event.data.currency] += event.data.price
            counts[event.data.currency] += 1
        table = model.table("total")
        await model.execute_many(
            f"INSERT INTO {table} AS t VALUES ($1, $2, $3) ON CONFLICT (currency) DO UPDATE "
            "SET price = t.price + excluded.price, count = t.count + excluded.count",
            [(currency, price, counts[currency]) for currency, price in prices.items()],
        )


def _copy(rooms: Rooms) -> None:
    """A row for each event."""

    @rooms.prices.setup
    async def tables(model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('price')} (room text, price bigint, day text)")

    @rooms.prices.on(RoomPriced)
    async def copy(events: Sequence[Event[RoomPriced]], model: Model) -> None:
        connection: Any = model.connection
        records = [(event.data.room_id, event.data.price, event.data.from_day) for event in events]
        await connection.copy_records_to_table(model.table("price"), records=records)


async def _filled(url: str, wanted: int) -> int:
    """Streams in the store; how many events they have."""
    rooms = Rooms(url)
    _fold(rooms)
    await app_of(rooms.service).open()
    first = RoomPriced(room_id="r0", price=120, currency="EUR", from_day="2026-04-22")
    async with rooms.service.transaction("t1") as tx:
        await rooms.book.append(tx, "r0", [first], expected=0)
    await rooms.service.aclose()
    connection = await asyncpg.connect(url)
    await connection.execute(MULTIPLY, PER_STREAM, max(1, wanted // PER_STREAM))
    await connection.execute(HEADS)
    await connection.execute("VACUUM ANALYZE posthouse.stream_event")
    count = int(await connection.fetchval("SELECT count(*) FROM posthouse.stream_event"))
    await connection.close()
    return count


async def _read_bare(url: str) -> float:
    connection = await asyncpg.connect(url)
    began, last = time.perf_counter(), 0
    while page := await connection.fetch(BARE, last, PAGE):
        last = page[-1][-1]
    took = time.perf_counter() - began
    await connection.close()
    return took


async def _read_pages(url: str) -> float:
    store = PostgresStore(url)
    cursor, more = "", True
    await store.streams.read_all(limit=1)
    began = time.perf_counter()
    while more:
        page = await store.streams.read_all(cursor, PAGE)
        cursor, more = page.cursor, page.more
    took = time.perf_counter() - began
    await store.aclose()
    return took


async def _rebuilt(url: str, declare: Callable[[Rooms], None], count: int) -> float:
    """From the first step to the swap; what it made goes afterwards."""
    rooms = Rooms(url)
    declare(rooms)
    await app_of(rooms.service).open()
    began = time.perf_counter()
    done = await app_of(rooms.service).projections.rebuild("prices", Plan(source="streams", drop_after=None))
    took = time.perf_counter() - began
    assert done.events == count, f"{done.events} of {count} events were fed"
    assert done.replaced is not None
    await app_of(rooms.service).projections.drop("prices", done.replaced)
    await rooms.service.aclose()
    return took

"""What a look at the store costs the database, with very many events held."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import asyncpg

from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale, at_most
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.counting import MOST, SUMS
from posthouse.stores.postgres.gauging import LIMIT, STANDING
from posthouse.watch.standing import READINGS

AT_ONCE = 500_000
UNSENT = 1_000_000
MOST_MILLISECONDS = 50.0
LARGE = ("held", "outbox", "saga", "timer", "stream_event", "stuck", "head")
"""Tables that may be large, their partitions included."""

# The indexes that can be made later, which is faster: not those of keys.
INDEXES = """
SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'posthouse.held'::regclass AND NOT i.indisprimary
"""

# Small events of 20 consumers in three topics; one in a thousand is dead, one in a hundred set aside. The triggers tally them.
HOLD = """
INSERT INTO posthouse.held (consumer, topic, tenant, lineage, event_id, digest, time, state, type, body, attempts, next_at,
    first_at, last_at, reason, error, stack)
SELECT 'consumer-' || n % 20, 'shop.topic-' || n % 3, 'tenant-' || n % 1000, 1, 'event-' || n, '', 0,
    CASE WHEN n % 1000 = 7 THEN 'dead' WHEN n % 100 = 3 THEN 'quarantined' WHEN n % 10 = 1 THEN 'gap' ELSE 'retrying' END,
    'shop.placed.v1', '{}', 1, 1e9 + n, 1e9 + n, 1e9, '', '', ''
FROM generate_series($1::bigint, $2::bigint) n
"""

# More than are counted at every look, and nobody sends them.
COMMIT = """
INSERT INTO posthouse.outbox (shard, topic, tenant, lineage, event_id, body)
SELECT n % 16, 'shop.topic-' || n % 3, 't', 1, 'event-' || n, '{}' FROM generate_series(1, $1::bigint) n
"""


# Lines that housekeeping has not summed up yet: those of 10 s at 500 events a second.
APPLY = """
INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
SELECT 'consumer-' || n % 20, 'shop.topic-' || n % 3, 1, 0 FROM generate_series(1, $1::bigint) n
"""
LINES = 5_000
SUMMED = 2 * READINGS - 1
"""So often are the sums read at one look while events move: before and after each reading of the broker, where all figures are
the first end."""


async def scrape(server: BenchServer, scale: Scale) -> list[Reading]:
    """One reading of all figures of a store in which 1,000,000 events are held, in milliseconds of the database."""
    return await _scraped(server, scale, 1_000_000)


async def scrape_big(server: BenchServer, scale: Scale) -> list[Reading]:
    """The same with 10,000,000."""
    return await _scraped(server, scale, 10_000_000)


async def _scraped(server: BenchServer, scale: Scale, usual: int) -> list[Reading]:
    count = scale.count(usual)
    async with server.prepared() as url:
        connection: Any = await asyncpg.connect(url)
        await _hold(connection, count)
        rounds = scale.turns(20)
        idle, whole = await _looked(connection, rounds)
        began = time.perf_counter()
        await connection.fetch("SELECT * FROM posthouse.counted()")
        counting = (time.perf_counter() - began) * 1000
        listing = await _listed(url, rounds)
        await connection.execute(COMMIT, scale.count(UNSENT))
        behind, also_whole = await _looked(connection, rounds)
        await connection.execute(APPLY, LINES)
        summing, of_sums = await _looked(connection, rounds, SUMS)
        await connection.close()
    held = f"scrape with {count:,} held"
    return [
        Reading(
            measure=f"{held} ÷ counting them",
            ours=idle,
            limit=counting,
            ratio=counting / idle,
            goal=MOST_MILLISECONDS,
            met=idle <= MOST_MILLISECONDS,
            unit="ms",
        ),
        at_most(f"{held} and {scale.count(UNSENT):,} unsent", behind, MOST_MILLISECONDS, "ms"),
        at_most("the sums that the equation is read from", summing, MOST_MILLISECONDS, "ms"),
        at_most("a whole look while events move", behind + SUMMED * summing, MOST_MILLISECONDS, "ms"),
        at_most("large tables that a scrape reads whole", len(whole | also_whole | of_sums), 0, "tables"),
        at_most(f"a page of the dead among {count:,} held", listing, MOST_MILLISECONDS, "ms"),
    ]


async def _hold(connection: Any, count: int) -> None:
    indexes = await connection.fetch(INDEXES)
    for name, _ in indexes:
        await connection.execute(f"DROP INDEX posthouse.{name}")
    for first in range(1, count + 1, AT_ONCE):
        await connection.execute(HOLD, first, min(count, first + AT_ONCE - 1), timeout=600)
    for _, definition in indexes:
        await connection.execute(definition, timeout=600)
    await connection.execute("VACUUM ANALYZE posthouse.held", timeout=600)


async def _looked(connection: Any, rounds: int, statement: str = STANDING) -> tuple[float, set[str]]:
    """Milliseconds that the server takes to plan and run a statement of a scrape, the median; and tables that were read whole."""
    parameters = (None, MOST) if statement == STANDING else ()
    taken, whole = [], set[str]()
    for _ in range(rounds + 1):
        async with connection.transaction(readonly=True):
            await connection.fetch(LIMIT, "600000")
            said = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}", *parameters
            )
        found = json.loads(said)[0]
        taken.append(found["Planning Time"] + found["Execution Time"])
        whole |= {
            node["Relation Name"]
            for node in _nodes(found["Plan"])
            if node["Node Type"] == "Seq Scan" and node["Relation Name"].startswith(LARGE)
        }
    return statistics.median(taken[1:]), whole


async def _listed(url: str, rounds: int) -> float:
    store = PostgresStore(url)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        await store.held.find(HeldFilter(state="dead"), limit=50)
        taken.append((time.perf_counter() - began) * 1000)
    await store.aclose()
    return statistics.median(taken)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for one in node.get("Plans", ()):
        yield from _nodes(one)

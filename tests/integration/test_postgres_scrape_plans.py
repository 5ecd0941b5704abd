"""What is read at every scrape, and by every list, is read by index: with nothing known of the tables, and with everything."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.gauging import LIMIT, STANDING
from posthouse.stores.postgres.held import find_held

LARGE = ("held", "outbox", "saga", "timer", "stream_event", "stuck", "head")
"""Tables that may have millions of rows; partitions of the outbox begin with its name."""

MANY = 40_000

# Many of each, of which few are of a kind that anybody looks for.
FILL = """
INSERT INTO posthouse.held (consumer, topic, tenant, key, lineage, event_id, digest, time, state, type, body, attempts, next_at,
    first_at, last_at, reason, error, stack)
SELECT 'c' || n % 4, 'topic' || n % 2, 't' || n % 50, 'k' || n % 100, 1, 'e' || n, '', 0, CASE WHEN n % 10000 = 1 THEN 'dead' ELSE 'retrying' END,
    'x', '', 0, n, n, 0, '', '', '' FROM generate_series(1, {many}) n;
INSERT INTO posthouse.saga (tenant, saga, id, attempt, status, turn, reason, started_at, changed_at, progress, state)
SELECT 't1', 's' || n % 3, 'i' || n, 1, CASE WHEN n % 10000 = 1 THEN 'partial' ELSE 'running' END, 1, '', n, 0, '{{}}', '{{}}'
FROM generate_series(1, {many}) n;
INSERT INTO posthouse.timer (name, due_at, shard, topic, tenant, event_id, numbered, body)
SELECT 'n' || n, n, 0, 't', 't1', 'e' || n, false, '' FROM generate_series(1, {many}) n;
INSERT INTO posthouse.outbox (shard, topic, tenant, lineage, event_id, body, slot)
SELECT n % 16, 't', 't1', 1, 'e' || n, '', n % 4 FROM generate_series(1, {many}) n;
"""

# As if a relay had sent everything; and something after that.
SENT = """
UPDATE posthouse.shard SET s1 = pg_current_snapshot();
INSERT INTO posthouse.outbox (shard, topic, tenant, lineage, event_id, body) VALUES (0, 't', 't1', 1, 'late', '')
"""

FILTERS = [
    HeldFilter(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type] # each name has values of its own
    for number in range(4)
    for chosen in itertools.combinations(
        (
            ("consumer", "c1"),
            ("topic", "topic1"),
            ("state", "dead"),
            ("tenant", "t7"),
            ("key", "k7"),
            ("event_id", "e77"),
        ),
        number,
    )
    for names, values in [([name for name, _ in chosen], [value for _, value in chosen])]
] + [
    HeldFilter(ids=[5, 77]),
    HeldFilter(consumer="c1", topic="topic1", tenant="t7", key="k"),
    HeldFilter(consumer="c1", topic="topic1", state="dead", tenant="t7", key="k"),
]


@pytest.fixture(params=["unknown", "known"])
async def session(store: PostgresStore, postgres_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Tables that were empty when the server last looked, or that it has just looked at."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("ANALYZE posthouse.held, posthouse.saga, posthouse.timer, posthouse.outbox")
    await connection.execute(FILL.format(many=MANY))
    await connection.execute(SENT)
    if request.param == "known":
        await connection.execute("ANALYZE posthouse.held, posthouse.saga, posthouse.timer, posthouse.outbox")
    yield connection
    await connection.close()


async def plan(session: Any, sql: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
    """The nodes of the plan, with what they did."""
    found = json.loads(await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *parameters))
    return list(nodes(found[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for one in node.get("Plans", ()):
        yield from nodes(one)


def whole(found: Sequence[dict[str, Any]]) -> list[str]:
    """The large tables that were read whole, row by row or by an index of which hardly a row was wanted."""
    return [
        f"{node['Node Type']} of {node['Relation Name']}"
        for node in found
        if node.get("Relation Name", "").startswith(LARGE)
        and (
            node["Node Type"] == "Seq Scan" or node.get("Rows Removed by Filter", 0) * node["Actual Loops"] > MANY / 10
        )
        and node["Actual Loops"] > 0
    ]


async def test_a_scrape_reads_no_large_table_whole(session: Any) -> None:
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with session.transaction():
            await session.execute(f"SET LOCAL plan_cache_mode = {mode}")
            await session.fetch(LIMIT, "5000")
            await session.execute(f"PREPARE {mode} (double precision, bigint) AS {STANDING}")
            found = await plan(session, f"EXECUTE {mode} (NULL, 1000)", ())
        assert whole(found) == []
        assert sum(node.get("Relation Name") == "held" for node in found) >= 3, "this is the plan of the scrape"
        seen = max(node["Actual Rows"] * node["Actual Loops"] for node in found if node.get("Relation Name") == "held")
        assert seen <= 5000, "of what is held, the due ones that are looked at for one whose turn it is"


async def test_a_list_of_held_events_reads_no_more_than_a_page(session: Any) -> None:
    """In blocks: what is done inside of a function shows in no plan. A walk along an index takes one for each row."""
    blocks: dict[str, int] = {}
    for wanted in FILTERS:
        for _ in range(2):  # plans are made once
            (first, *_) = found = await plan(session, *find_held(wanted, after=0, limit=50))
            blocks[str(wanted)] = first["Shared Hit Blocks"] + first["Shared Read Blocks"]
        assert whole(found) == []
    assert {wanted: number for wanted, number in blocks.items() if number > MANY / 40} == {}
    assert len(blocks) > 25

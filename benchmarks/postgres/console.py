"""What the console's pages take with very many events held: time, and tables that are read whole."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import asyncpg

from benchmarks.postgres.explaining import hearing
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, at_most, figure, percentile
from posthouse import App, Saga, Service, Turn, starts
from posthouse.console.estate import Estate
from posthouse.console.pages import TABLES
from posthouse.store import HeldFilter
from posthouse.store.actions import ActionFilter
from posthouse.store.browsing import Browsing, OutboxFilter
from posthouse.store.sagas import SagaFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.checks import WRONG
from tests.kit.console import Asking

AT_ONCE = 500_000
OTHERS = 100_000
"""Sagas, timers, actions, rows of the outbox and of the inbox."""
HOT = 50_000
"""Events that wait behind the first of one key."""
MOST_MILLISECONDS = 200.0
ROUNDS = 40
LARGE = ("held", "outbox", "saga", "timer", "stream_event", "stuck", "head", "inbox", "action")
"""Tables that may be large, their partitions and companions included."""
WHILE_SMALL = (WRONG,)
"""Asked only while all that it reads is small: see `COUNTED_BYTES`."""

# The indexes that can be made later, which is faster: not those of keys.
INDEXES = """
SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'posthouse.held'::regclass AND NOT i.indisprimary
"""

# Half of all belong to one consumer, three in seven to one tenant; some wait for a number or behind another, some are dead, and
# one in ten thousand is skipped. A third of the failures are one, at all consumers; the rest are eleven of each consumer.
HOLD = """
INSERT INTO posthouse.held (consumer, topic, tenant, key, sequence, lineage, event_id, digest, time, state, type, headers, body,
    attempts, next_at, first_at, last_at, reason, error, stack, fingerprint, correlation)
SELECT 'consumer-' || r.consumer, 'shop.topic-' || r.consumer % 3, r.tenant, r.key, CASE WHEN r.key IS NOT NULL THEN n END, 1,
    'event-' || n, '', 0, r.state, 'shop.placed.v1', '{"content-type":"application/json"}', convert_to(repeat('x', 100), 'UTF8'),
    3, 2e9 + n, 1e9 + n, 1e9 + n, 'no more room', 'ValueError: ' || repeat('no', 20), repeat('s', 100), CASE
        WHEN r.state IN ('gap', 'blocked') THEN '' WHEN n % 3 = 0 THEN 'ValueError in shop/orders.py:charge'
        ELSE 'Error' || n % 11 || ' in shop/consumer_' || r.consumer || '.py:ship' END,
    'story-' || n / 5
FROM (SELECT n, CASE WHEN n % 2 = 0 THEN 0 WHEN n % 4 = 1 THEN 1 ELSE 2 + n / 4 % 18 END AS consumer,
    CASE WHEN n % 7 < 3 THEN 'tenant-0' ELSE 'tenant-' || n % 997 END AS tenant,
    CASE WHEN n % 5 = 0 THEN 'key-' || n % 500000 END AS key,
    CASE WHEN n % 10000 = 77 THEN 'skipped' WHEN n % 100 = 3 THEN 'quarantined' WHEN n % 10 = 1 THEN 'dead'
        WHEN n % 10 = 5 THEN 'gap' WHEN n % 10 = 0 THEN 'blocked' ELSE 'retrying' END AS state
    FROM generate_series($1::bigint, $2::bigint) n) r
"""

# One key with very many behind its first.
HOLD_HOT = f"""
INSERT INTO posthouse.held (consumer, topic, tenant, key, sequence, lineage, event_id, digest, time, state, type, body, attempts,
    next_at, first_at, last_at, reason, error, stack)
SELECT 'consumer-1', 'shop.topic-1', 'tenant-0', 'hot', n, 1, 'hot-' || n, '', 0, CASE n WHEN 1 THEN 'dead' ELSE 'blocked' END,
    'shop.placed.v1', '', 1, 0, 1e9, 1e9, '', '', '' FROM generate_series(1, {HOT}) n
"""

REST: Mapping[str, str] = {
    "consumers": """INSERT INTO posthouse.consumer (consumer, topic, adopt)
SELECT 'consumer-' || n, 'shop.topic-' || n % 3, false FROM generate_series(0, 19) n WHERE $1::bigint > 0""",
    "heads": """INSERT INTO posthouse.head (consumer, topic, tenant, key, sequence, lineage, event_id, digest, held)
SELECT 'consumer-' || n % 20, 'shop.topic-' || n % 20 % 3, 'tenant-' || n % 997, 'key-' || n, 0, 1, '', '', 0
FROM generate_series(1, $1::bigint) n""",
    "sagas": """INSERT INTO posthouse.saga (tenant, saga, id, attempt, status, turn, reason, correlation, started_at, changed_at,
    ended_at, progress, state)
SELECT 'tenant-' || n % 97, 'saga_' || n % 7, 's-' || n, 1, CASE WHEN n % 10 < 6 THEN 'completed' WHEN n % 1000 = 7 THEN 'partial'
    WHEN n % 10 = 8 THEN 'compensated' ELSE 'running' END, 3, '', 'story-' || n, 1e9 + n, 1e9 + n,
    CASE WHEN n % 10 < 6 OR n % 10 = 8 THEN 1e9 + n END, '{}', '{"total":' || n || ',"note":"' || repeat('n', 200) || '"}'
FROM generate_series(1, $1::bigint) n""",
    "turns": """INSERT INTO posthouse.saga_turn (tenant, number, turn, record)
SELECT s.tenant, s.number, t, json_build_object('turn', t, 'at', 1e9, 'status', 'running', 'input',
    json_build_object('kind', 'event', 'type', 'shop.placed.v1'))::text
FROM posthouse.saga s, generate_series(1, 3) t WHERE $1::bigint > 0""",
    "timers": """INSERT INTO posthouse.timer (name, due_at, shard, topic, tenant, event_id, key, numbered, body)
SELECT 'timer-' || n, 4e9 + n % 1000, 0, 'shop.topic-1', 'tenant-' || n % 97, 'later-' || n, 'key-' || n, true,
    convert_to(repeat('x', 200), 'UTF8') FROM generate_series(1, $1::bigint) n""",
    "actions": """INSERT INTO posthouse.action (id, at, by, why, verb, service, consumer, topic, tenant, key, event_id, target, changed,
    count, outcome)
SELECT 'a-' || n, 1e9 + n / 3, 'operator-' || n % 9, 'ticket', CASE WHEN n % 3 = 0 THEN 'held retry' WHEN n % 3 = 1 THEN 'held skip'
    ELSE 'console view' END, 'shop', 'consumer-0', 'shop.topic-0', 'tenant-' || n % 97, 'key-' || n, 'event-' || n, 'held ' || n, '{}',
    1, 'done' FROM generate_series(1, $1::bigint) n""",
    "outbox": """INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, headers, body)
SELECT n % 16, 'shop.topic-' || n % 3, 'tenant-' || n % 97, 'key-' || n % 5000, n, 1, 'said-' || n,
    '{"ce-correlationid":"story-' || n / 5 || '"}', convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, $1::bigint) n""",
    "inbox": """INSERT INTO posthouse.inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
SELECT 'consumer-' || n % 20, 'tenant-' || n % 97, 'said-' || n, 'shop.topic-0', '', 0, 1e9, 'applied'
FROM generate_series(1, $1::bigint) n""",
}

# How often each table with more than a thousand rows was read whole so far.
WHOLE = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'posthouse' AND n_live_tup > 1000"

# Sessions of others that began since.
SINCE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND backend_start > $1
"""

ASKED: Mapping[str, Mapping[str, str]] = {
    "/keys": {"topic": "shop.topic-1", "tenant": "tenant-0", "key": "hot"},
    "/events": {"q": "event-77"},
}
"""What pages are asked for that need more than their path."""

Question = Callable[[Browsing, random.Random, int], Awaitable[object]]
"""Asks what a page shows, each time a little differently; of so many held."""


async def _held_somewhere(browsing: Browsing, drawn: random.Random, held: int) -> object:
    return await browsing.held(HeldFilter(), after=drawn.randrange(held))


async def _and_behind(browsing: Browsing, drawn: random.Random, held: int) -> object:
    lines = await browsing.held(HeldFilter(state="dead", consumer="consumer-1"), newest=drawn.random() < 0.5)
    return await browsing.waiting_behind(lines)


async def _hot(browsing: Browsing, drawn: random.Random, held: int) -> object:
    lines = await browsing.held(HeldFilter(key="hot"), newest=False)
    return await browsing.waiting_behind(lines)


def _consumer(drawn: random.Random) -> str:
    return f"consumer-{drawn.choice((0, 0, 1, drawn.randrange(2, 20)))}"


def _failure(drawn: random.Random) -> str:
    return f"Error{drawn.randrange(11)} in shop/consumer_{drawn.randrange(20)}.py:ship"


def _tenants(drawn: random.Random) -> list[str]:
    return ["tenant-0", *(f"tenant-{drawn.randrange(997)}" for _ in range(drawn.randrange(5)))]


QUESTIONS: Mapping[str, Question] = {
    "held, newest": lambda b, d, n: b.held(HeldFilter()),
    "held, a page far down": _held_somewhere,
    "held of a consumer": lambda b, d, n: b.held(HeldFilter(consumer=_consumer(d)), after=d.randrange(n)),
    "held, dead": lambda b, d, n: b.held(HeldFilter(state="dead"), after=d.randrange(n)),
    "held, skipped, which are few": lambda b, d, n: b.held(HeldFilter(state="skipped"), newest=d.random() < 0.5),
    "held of a consumer and state": lambda b, d, n: b.held(HeldFilter(consumer=_consumer(d), state="gap")),
    "held of a topic": lambda b, d, n: b.held(HeldFilter(topic="shop.topic-2"), after=d.randrange(n)),
    "held of one failure": lambda b, d, n: b.held(HeldFilter(fingerprint=_failure(d)), after=d.randrange(n)),
    "held of the largest failure, dead": lambda b, d, n: b.held(
        HeldFilter(fingerprint="ValueError in shop/orders.py:charge", state="dead"), after=d.randrange(n)
    ),
    "held of some tenants": lambda b, d, n: b.held(HeldFilter(tenants=_tenants(d)), after=d.randrange(n)),
    "held of some tenants, one failure": lambda b, d, n: b.held(
        HeldFilter(tenants=_tenants(d), fingerprint=_failure(d))
    ),
    "held of a key": lambda b, d, n: b.held(HeldFilter(key=f"key-{d.randrange(100_000) * 5}")),
    "held of a story": lambda b, d, n: b.held(HeldFilter(correlation=f"story-{d.randrange(n // 5)}")),
    "held of an event": lambda b, d, n: b.held(HeldFilter(event_id=f"event-{d.randrange(n)}")),
    "held of nobody": lambda b, d, n: b.held(HeldFilter(consumer="nobody", state="dead")),
    "held, with what waits behind each": _and_behind,
    "held of a hot key, with what waits behind": _hot,
    "failures": lambda b, d, n: b.held_groups(HeldFilter()),
    "failures of a consumer": lambda b, d, n: b.held_groups(HeldFilter(consumer=_consumer(d), state="dead")),
    "failures of one tenant": lambda b, d, n: b.held_groups(HeldFilter(tenants=[f"tenant-{d.randrange(1, 997)}"])),
    "failures of the largest tenant": lambda b, d, n: b.held_groups(HeldFilter(tenants=["tenant-0"])),
    "failures of the largest tenant, dead": lambda b, d, n: b.held_groups(
        HeldFilter(tenants=["tenant-0"], state="dead", consumer=_consumer(d))
    ),
    "sagas, newest": lambda b, d, n: b.sagas(SagaFilter()),
    "sagas, running": lambda b, d, n: b.sagas(SagaFilter(status="running"), after=d.randrange(OTHERS)),
    "sagas, partial, which are few": lambda b, d, n: b.sagas(SagaFilter(status="partial")),
    "sagas of one kind": lambda b, d, n: b.sagas(SagaFilter(saga="saga_3", status="completed")),
    "sagas of some tenants": lambda b, d, n: b.sagas(SagaFilter(tenants=_tenants(d), status="running")),
    "saga by id": lambda b, d, n: b.sagas(SagaFilter(saga="saga_3", tenant=f"tenant-{d.randrange(97)}", id="s-10")),
    "sagas of a story": lambda b, d, n: b.sagas(SagaFilter(correlation=f"story-{d.randrange(OTHERS)}")),
    "timers": lambda b, d, n: b.timers(after=(4e9 + d.randrange(1000), 0)),
    "timers of some tenants": lambda b, d, n: b.timers(_tenants(d)),
    "operators' log": lambda b, d, n: b.actions(ActionFilter(), after=(1e9 + d.randrange(OTHERS // 3), "")),
    "operators' log of an event": lambda b, d, n: b.actions(ActionFilter(event_id=f"event-{d.randrange(OTHERS)}")),
    "operators' log of a verb": lambda b, d, n: b.actions(ActionFilter(verb="held", by="operator-3")),
    "outbox, an event among the last 20,000": lambda b, d, n: b.outbox(
        OutboxFilter(event_id=f"said-{OTHERS - d.randrange(20_000)}")
    ),
    "outbox, a story among the last 20,000": lambda b, d, n: b.outbox(
        OutboxFilter(contains=f"story-{OTHERS // 5 - d.randrange(4000)}")
    ),
    "a key at its consumers": lambda b, d, n: b.heads(f"tenant-{d.randrange(997)}", f"key-{d.randrange(OTHERS)}"),
    "an event at its consumers": lambda b, d, n: b.applied(f"tenant-{d.randrange(97)}", f"said-{d.randrange(OTHERS)}"),
}


async def console(server: BenchServer, held: int, rounds: int = ROUNDS) -> list[Reading]:
    """Every list and every page of the console, in milliseconds, with so many events held and 100,000 sagas."""
    async with server.prepared() as url:
        await fill(url, held)
        return await asked(url, held, rounds)


async def fill(url: str, held: int, others: int = OTHERS) -> None:
    """So many held events, and so many of everything else."""
    connection: Any = await asyncpg.connect(url)
    try:
        await _fill(connection, held, others)
    finally:
        await connection.close()
    store = PostgresStore(url)
    await store.inbox.purge(1e12, 10_000)  # as housekeeping does every few seconds: it sums up what was tallied
    await store.aclose()


async def asked(
    url: str, held: int, rounds: int, *, questions: Mapping[str, Question] = QUESTIONS, pages: bool = True
) -> list[Reading]:
    """What each answer took; how many large tables were read whole for all of them, as the server counted, functions and all; and
    how many the plans of the statements behind them would read whole."""
    connection: Any = await asyncpg.connect(url)
    try:
        began = await connection.fetchval("SELECT clock_timestamp()")
        before = dict(await connection.fetch(WHOLE))
        with hearing() as heard:
            readings = await _listed(url, held, rounds, questions)
            if pages:
                readings += await _pages(url, rounds)
        await _until_told(connection, began)
        after = dict(await connection.fetch(WHOLE))
    finally:
        await connection.close()
    plans, planned = await heard.read_whole(url, LARGE, besides=WHILE_SMALL)
    whole = sorted(name for name in after if name.startswith(LARGE) and after[name] > before.get(name, 0))
    return [
        *readings,
        figure("statements explained", plans, "plans"),
        at_most(f"large tables in plans that read them whole{_named(planned)}", len(planned), 0, "tables"),
        at_most(f"large tables that were read whole{_named(whole)}", len(whole), 0, "tables"),
    ]


def _named(tables: Sequence[str]) -> str:
    return f": {', '.join(tables)}" if tables else ""


async def _fill(connection: Any, held: int, others: int) -> None:
    """The rows. They are written without a log and counted at the end, both of which is faster."""
    began = time.perf_counter()
    indexes = await connection.fetch(INDEXES)
    await connection.execute("SET maintenance_work_mem = '512MB'; ALTER TABLE posthouse.held SET UNLOGGED")
    await connection.execute("ALTER TABLE posthouse.held DISABLE TRIGGER USER")
    for name, _ in indexes:
        await connection.execute(f"DROP INDEX posthouse.{name}")
    for first in range(1, held + 1, AT_ONCE):
        await connection.execute(HOLD, first, min(held, first + AT_ONCE - 1), timeout=1800)
    await connection.execute(HOLD_HOT)
    _say(f"{held:,} rows", began)
    for _, definition in indexes:
        await connection.execute(definition, timeout=1800)
    _say("their indexes", began)
    await connection.execute("ALTER TABLE posthouse.held ENABLE TRIGGER USER")
    for statement in REST.values():
        await connection.execute(statement, others, timeout=1800)
    await connection.execute("SELECT posthouse.recount()", timeout=1800)
    _say("the rest", began)
    await connection.execute("VACUUM ANALYZE", timeout=1800)
    await connection.execute("CHECKPOINT", timeout=1800)
    _say("and put in order", began)


def _say(what: str, began: float) -> None:
    print(f"  {what}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


async def _until_told(connection: Any, began: datetime) -> None:
    """A session tells what it read at its end, at the latest."""
    async with asyncio.timeout(30):
        while await connection.fetchval(SINCE, began):
            await connection.execute("SELECT pg_sleep(0.05)")
    await connection.execute("SELECT pg_stat_clear_snapshot()")


async def _listed(url: str, held: int, rounds: int, questions: Mapping[str, Question]) -> list[Reading]:
    store = PostgresStore(url)
    readings = []
    for name, question in questions.items():
        drawn = random.Random(name)
        readings += await _timed(name, partial(question, store.browsing, drawn, held), rounds)
    await store.aclose()
    return readings


async def _pages(url: str, rounds: int) -> list[Reading]:
    """The pages that need no parameter, as the console's own functions answer them."""
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
        app = App(_shop(), store=url, broker=f"embedded:///{folder}/log.db?single_host=true")
        await app.open()
        await app.aclose()
        asking = Asking(Estate(app))
        readings = []
        try:
            for path in sorted(path for path in TABLES if "{" not in path):
                readings += await _timed(f"page {path}", partial(asking.get, path, ASKED.get(path)), rounds)
        finally:
            await asking.estate.aclose()
    return readings


def _shop() -> Service:
    """A service that declares what is stored, so that pages have something to show of it."""
    shop = Service("shop")

    class Walk(Saga):
        walk_id: str

        @starts
        def begin(self, turn: Turn) -> None:
            turn.complete()

    for number in range(7):
        shop.saga(f"saga_{number}", correlate="walk_id")(Walk)
    return shop


async def _timed(name: str, ask: Callable[[], Awaitable[object]], rounds: int) -> list[Reading]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        try:
            await ask()
        except Exception as error:
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
            return [at_most(f"{name}: {type(error).__name__}", float("inf"), MOST_MILLISECONDS, "ms")]
        taken.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0)
    return [
        figure(f"{name}, p50", percentile(taken, 50), "ms"),
        at_most(f"{name}, p95", percentile(taken, 95), MOST_MILLISECONDS, "ms"),
    ]

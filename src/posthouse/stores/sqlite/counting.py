"""Counting: the figures of a store, read in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from posthouse.errors import StoreUnavailable
from posthouse.local.sqlite import mapped
from posthouse.store import Counts, Gauges
from posthouse.store.sagas import NOT_OVER
from posthouse.stores.sqlite.projections import GENERATIONS, generation_of

T = TypeVar("T")

# Rows not yet read by their shard's relay, per topic.
BACKLOG = """
SELECT o.topic, count(*) FROM posthouse_outbox o CROSS JOIN posthouse_shard l ON l.number = o.shard
WHERE o.id > (SELECT min(cursor) FROM posthouse_shard) AND o.id > l.cursor GROUP BY o.topic
"""

# Rows that the broker accepted, per topic.
SENT = "SELECT topic, count FROM posthouse_sent"

# Rows that it refused, per topic.
STUCK = "SELECT topic, count(*) FROM posthouse_stuck GROUP BY topic"
REFUSED = "SELECT topic, count(*) FROM posthouse_stuck WHERE quarantined GROUP BY topic"

# Events applied and skipped.
APPLIED = "SELECT consumer, topic, applied, skipped FROM posthouse_applied"

# Events held, and frames in which no event could be read, which have no type; and how many wait at a gap for too long.
HELD = """
SELECT consumer, topic, CASE WHEN type = '' AND state IN ('quarantined', 'skipped') THEN 'strange' ELSE state END AS what,
    count(*), sum(state = 'gap' AND next_at <= ?)
FROM posthouse_held GROUP BY consumer, topic, what
"""

# Events accepted as lost.
LOST = "SELECT consumer, topic, lost FROM posthouse_loss WHERE lost <> 0"

# Timers set.
TIMERS = "SELECT count(*) FROM posthouse_timer"

# How long ago the first refusal was, of rows that are stuck.
OLDEST_STUCK = "SELECT ? - min(first_at) FROM posthouse_stuck"

# How long ago the first of them was held; and for how long one waits to be taken up.
HELD_OLDEST = """
SELECT consumer, state, ? - min(first_at) FROM posthouse_held WHERE state <> 'skipped' GROUP BY consumer, state
"""
HELD_RUNNABLE = """
SELECT consumer, ?1 - min(next_at) FROM posthouse_held WHERE state IN ('retrying', 'gap') AND next_at <= ?1 GROUP BY consumer
"""

# For how long the first timer has been due.
TIMERS_OVERDUE = "SELECT ? - min(due_at) FROM posthouse_timer"

# Sagas that are there, and how long ago the first of each kind was started; those that ended.
SAGAS = """
SELECT saga, status, count(*), ? - min(started_at) FROM posthouse_saga WHERE purged_at IS NULL GROUP BY saga, status
"""
SAGAS_ENDED = "SELECT saga, status, count(*) FROM posthouse_saga WHERE ended_at IS NOT NULL GROUP BY saga, status"

# Schedules that run and whose moment has passed.
SCHEDULES = "SELECT service, name, ?1 - next_at FROM posthouse_schedule WHERE paused_at IS NULL AND next_at < ?1"

# Shards that a relay holds, all of them, and how often they were taken over.
SHARDS = (
    "SELECT coalesce(sum(owner IS NOT NULL AND until > ?), 0), count(*), coalesce(sum(epoch), 0) FROM posthouse_shard"
)


async def looked(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], timeout: float | None) -> T:
    """What `work` reads on a connection that is closed then, on a thread of its own; StoreUnavailable after `timeout` seconds."""
    late = threading.Event()

    def look() -> T:
        with mapped("counting"), closing(connection):
            connection.execute("BEGIN")
            return work(connection)

    def interrupt() -> None:
        late.set()
        connection.interrupt()

    timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, interrupt)
    try:
        return await asyncio.to_thread(look)
    except Exception as error:
        if not late.is_set():
            raise
        raise StoreUnavailable(f"the database did not say how it stands within {timeout:g} s") from error
    finally:
        if timer is not None:
            timer.cancel()


def counts(connection: sqlite3.Connection, now: float) -> Counts:
    """The figures that must add up."""
    backlog, sent, stuck = (_figures(connection, sql) for sql in (BACKLOG, SENT, STUCK))
    topics = sorted({*backlog, *sent, *stuck})
    unsent = {topic: backlog.get(topic, 0) + stuck.get(topic, 0) for topic in topics}
    applied = connection.execute(APPLIED).fetchall()
    found = connection.execute(HELD, (now,)).fetchall()
    held = {(consumer, topic, state): number for consumer, topic, state, number, _ in found}
    skipped = Counter({(consumer, topic): number for consumer, topic, _, number in applied})
    for consumer, topic in {(consumer, topic) for consumer, topic, state in held if state == "skipped"}:
        skipped[consumer, topic] += held.pop((consumer, topic, "skipped"))
    strange = {(consumer, topic): number for (consumer, topic, what), number in held.items() if what == "strange"}
    return Counts(
        committed={topic: unsent[topic] + sent.get(topic, 0) for topic in topics},
        unsent={topic: number for topic, number in unsent.items() if number},
        stuck=sum(stuck.values()),
        refused=_figures(connection, REFUSED),
        applied={(consumer, topic): number for consumer, topic, number, _ in applied if number},
        skipped=+skipped,
        held={place: number for place, number in held.items() if place[2] != "strange"},
        strange=strange,
        overdue={(consumer, topic): late for consumer, topic, _, _, late in found if late},
        lost={(consumer, topic): number for consumer, topic, number in connection.execute(LOST)},
        timers=connection.execute(TIMERS).fetchone()[0],
    )


def _figures(connection: sqlite3.Connection, sql: str) -> dict[str, int]:
    return dict(connection.execute(sql).fetchall())


def gauges(connection: sqlite3.Connection, now: float) -> Gauges:
    """How it stands."""
    read = connection.execute
    leased, shards, leases = read(SHARDS, (now,)).fetchone()
    sagas = read(SAGAS, (now,)).fetchall()
    late = read(HELD_RUNNABLE, (now,)).fetchall()
    return Gauges(
        at=now,
        counts=counts(connection, now),
        oldest_stuck=_age(connection, OLDEST_STUCK, now),
        held_oldest={(consumer, state): max(0.0, age) for consumer, state, age in read(HELD_OLDEST, (now,))},
        held_runnable={consumer: max(0.0, age) for consumer, age in late},
        timers_overdue=_age(connection, TIMERS_OVERDUE, now),
        sagas={(saga, status): number for saga, status, number, _ in sagas},
        sagas_ended={(saga, status): number for saga, status, number in read(SAGAS_ENDED)},
        sagas_oldest={(saga, status): max(0.0, age) for saga, status, _, age in sagas if status in NOT_OVER},
        schedules_overdue={(service, name): age for service, name, age in read(SCHEDULES, (now,))},
        generations=[row for row in map(generation_of, read(GENERATIONS)) if row.state != "retired"],
        shards_leased=leased,
        shards_free=shards - leased,
        leases=leases,
    )


def _age(connection: sqlite3.Connection, sql: str, now: float) -> float:
    age: Any = connection.execute(sql, (now,)).fetchone()[0]
    return max(0.0, age or 0.0)

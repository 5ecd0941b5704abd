"""Counting: the figures of a store, read in one transaction."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any, TypeVar

from posthouse.errors import StoreUnavailable
from posthouse.local.sqlite import mapped
from posthouse.store import Counts, Gauges, Sums
from posthouse.store.sagas import NOT_OVER
from posthouse.stores.sqlite.projections import GENERATIONS, generation_of

T = TypeVar("T")

MOST = 5_000
"""Rows of a backlog that are counted at every look; of a longer one the rest is estimated."""

GAPS = 100
"""Gaps of a consumer past their deadline that are counted at every look."""

# Rows not yet read by their shard's relay, per topic, with the first id and its time: up to so many.
BACKLOG = """
SELECT topic, count(*), min(id), min(written_at) FROM (
    SELECT o.topic, o.id, o.written_at FROM posthouse_outbox o CROSS JOIN posthouse_shard l ON l.number = o.shard
    WHERE o.id > (SELECT min(cursor) FROM posthouse_shard) AND o.id > l.cursor ORDER BY o.id LIMIT ?)
GROUP BY topic
"""

# The last id ever given to a row.
DRAWN = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'posthouse_outbox'"

# Rows that the broker accepted, per topic.
SENT = "SELECT topic, count FROM posthouse_sent"

# Events applied and skipped.
APPLIED = "SELECT consumer, topic, applied, skipped FROM posthouse_applied"

# How many there are of each kind.
TALLY = "SELECT kind, name, topic, state, number FROM posthouse_tally WHERE number <> 0"

# Events that wait at a gap for too long: of each consumer up to so many.
OVERDUE = """
SELECT topic, count(*) FROM (
    SELECT topic FROM posthouse_held WHERE consumer = ? AND state = 'gap' AND next_at <= ? ORDER BY next_at LIMIT ?)
GROUP BY topic
"""

# Events accepted as lost.
LOST = "SELECT consumer, topic, lost FROM posthouse_loss WHERE lost <> 0"

# How long ago the first refusal was, of rows that the broker may still take.
OLDEST_STUCK = "SELECT ? - first_at FROM posthouse_stuck WHERE topic = ? AND NOT quarantined ORDER BY first_at LIMIT 1"

# The first of each kind of held event, in leaps.
FIRST_HELD = "SELECT first_at FROM posthouse_held WHERE consumer = ? AND topic = ? AND state = ? ORDER BY id LIMIT 1"

# For how long those whose turn it is have waited to be taken up, and how many they are; of those that are due, the first two
# hundred are looked at.
RUNNABLE = """
SELECT ?3 - min(d.next_at), count(*) FROM (
    SELECT * FROM posthouse_held WHERE consumer = ?1 AND state = ?2 AND next_at <= ?3 ORDER BY next_at LIMIT 200) d
LEFT JOIN posthouse_head h ON h.consumer = d.consumer AND h.topic = d.topic AND h.tenant = d.tenant AND h.key = d.key
WHERE d.state = 'gap' OR d.sequence IS NULL OR d.sequence = h.sequence + 1
"""

# For how long the first timer has been due.
TIMERS_OVERDUE = "SELECT ? - due_at FROM posthouse_timer ORDER BY due_at LIMIT 1"

# How long ago the first saga of a kind was started.
FIRST_SAGA = """
SELECT ? - started_at FROM posthouse_saga WHERE saga = ? AND status = ? AND purged_at IS NULL ORDER BY number LIMIT 1
"""

# Schedules that run and whose moment has passed.
SCHEDULES = "SELECT service, name, ?1 - next_at FROM posthouse_schedule WHERE paused_at IS NULL AND next_at < ?1"

# Shards that a relay holds, all of them, and how often they were taken over.
SHARDS = (
    "SELECT coalesce(sum(owner IS NOT NULL AND until > ?), 0), count(*), coalesce(sum(epoch), 0) FROM posthouse_shard"
)


class Late(StoreUnavailable):
    """A look took longer than it may."""


async def looked(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], timeout: float | None) -> T:
    """What `work` reads on a connection that is closed then, on a thread of its own; Late after `timeout` seconds."""
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
        raise Late(f"the database did not say how it stands within {timeout:g} s") from error
    finally:
        if timer is not None:
            timer.cancel()


def counts(connection: sqlite3.Connection, now: float, most: int = -1) -> Counts:
    """The figures that must add up. Of what may be long, `most` are counted; below 0: all."""
    read = connection.execute
    backlog, estimated = _backlog(connection, most)
    tally = read(TALLY).fetchall()
    held = {(name, topic, state): number for kind, name, topic, state, number in tally if kind == "held"}
    strange, strange_skipped = _strange(held)
    applied = read(APPLIED).fetchall()
    skipped = Counter({(consumer, topic): number for consumer, topic, _, number in applied})
    skipped.update(_taken(held, "skipped"))
    stuck: Counter[str] = Counter()
    for kind, _, topic, _, number in tally:
        if kind == "stuck":
            stuck[topic] += number
    sent = dict(read(SENT).fetchall())
    topics = sorted({*backlog, *sent, *stuck})
    unsent = {topic: backlog.get(topic, 0) + stuck.get(topic, 0) for topic in topics}
    gaps_counted = most if most < 0 else GAPS
    gaps = sorted({consumer for consumer, _, state in held if state == "gap"})
    return Counts(
        committed={topic: unsent[topic] + sent.get(topic, 0) for topic in topics},
        unsent={topic: number for topic, number in unsent.items() if number},
        stuck=stuck.total(),
        refused={topic: number for kind, _, topic, state, number in tally if (kind, state) == ("stuck", "refused")},
        applied={(consumer, topic): number for consumer, topic, number, _ in applied if number},
        skipped=+skipped,
        held=held,
        strange=strange,
        strange_skipped=strange_skipped,
        overdue={
            (consumer, topic): late for consumer in gaps for topic, late in read(OVERDUE, (consumer, now, gaps_counted))
        },
        lost={(consumer, topic): number for consumer, topic, number in read(LOST)},
        timers=sum(number for kind, *_, number in tally if kind == "timer"),
        estimated=estimated,
    )


def sums(connection: sqlite3.Connection) -> Sums:
    """What was sent and accounted for."""
    read = connection.execute
    held = {(name, topic, state): number for kind, name, topic, state, number in read(TALLY) if kind == "held"}
    strange, _ = _strange(held)
    accounted = Counter({(consumer, topic): applied + skipped for consumer, topic, applied, skipped in read(APPLIED)})
    for (consumer, topic, _), number in held.items():
        accounted[consumer, topic] += number
    accounted.update({(consumer, topic): number for consumer, topic, number in read(LOST)})
    return Sums(
        sent={topic: number for topic, number in read(SENT) if number},
        accounted={place: number for place, number in accounted.items() if number},
        strange=strange,
    )


def gauges(connection: sqlite3.Connection, now: float) -> Gauges:
    """How it stands."""
    read = connection.execute
    leased, shards, leases = read(SHARDS, (now,)).fetchone()
    found = counts(connection, now, MOST)
    tally = read(TALLY).fetchall()
    sagas = {(name, status): number for kind, name, _, status, number in tally if kind == "saga"}
    waiting = sorted({(consumer, state) for consumer, _, state in found.held if state in ("retrying", "gap")})
    runnable, due = _runnable(connection, now, waiting)
    return Gauges(
        at=now,
        counts=found,
        unsent_oldest=_unsent_oldest(
            connection, now, [topic for kind, _, topic, state, _ in tally if (kind, state) == ("stuck", "waiting")]
        ),
        held_oldest=_held_oldest(connection, now, {*found.held, *((*place, "quarantined") for place in found.strange)}),
        held_runnable=runnable,
        held_due=due,
        timers_overdue=_age(read(TIMERS_OVERDUE, (now,))),
        sagas=sagas,
        sagas_ended={(name, outcome): number for kind, name, _, outcome, number in tally if kind == "ended"},
        sagas_oldest={place: _age(read(FIRST_SAGA, (now, *place))) for place in sagas if place[1] in NOT_OVER},
        schedules_overdue={(service, name): age for service, name, age in read(SCHEDULES, (now,))},
        generations=[row for row in map(generation_of, read(GENERATIONS)) if row.state != "retired"],
        shards_leased=leased,
        shards_free=shards - leased,
        leases=leases,
    )


def _unsent_oldest(connection: sqlite3.Connection, now: float, stuck: Collection[str]) -> dict[str, float]:
    """Per topic; `stuck` are those of which rows are tried again."""
    found = {topic: max(0.0, now - written) for topic, _, _, written in connection.execute(BACKLOG, (MOST,))}
    for topic in stuck:
        refused = _age(connection.execute(OLDEST_STUCK, (now, topic)))
        found[topic] = max(found.get(topic, 0.0), refused)
    return found


def _backlog(connection: sqlite3.Connection, most: int) -> tuple[Mapping[str, int], bool]:
    """What waits, per topic, and whether that is an estimate: all ids that were given since the first one that waits, shared out as
    those are that were counted."""
    rows = connection.execute(BACKLOG, (most,)).fetchall()
    counted = Counter({topic: number for topic, number, *_ in rows})
    if most < 0 or counted.total() < most:
        return counted, False
    drawn = connection.execute(DRAWN).fetchone()[0] - min(first for _, _, first, _ in rows) + 1
    share = max(1.0, drawn / counted.total())
    return {topic: math.ceil(number * share) for topic, number in counted.items()}, True


def _taken(held: dict[Any, int], state: str) -> dict[tuple[str, str], int]:
    """Those in a state, which are not among the held ones any more."""
    return {place[:2]: held.pop(place) for place in list(held) if place[2] == state}


def _strange(held: dict[Any, int]) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Frames in which no event could be read, and the skipped ones of them; neither are among the held ones any more."""
    skipped = _taken(held, "strange skipped")
    both = Counter(_taken(held, "strange quarantined"))
    both.update(skipped)
    return dict(both), skipped


def _held_oldest(connection: sqlite3.Connection, now: float, kinds: Collection[Any]) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for consumer, topic, state in kinds:
        for (first_at,) in connection.execute(FIRST_HELD, (consumer, topic, state)):
            found[consumer, state] = max(found.get((consumer, state), 0.0), now - first_at)
    return found


def _runnable(
    connection: sqlite3.Connection, now: float, waiting: Collection[tuple[str, str]]
) -> tuple[dict[str, float], dict[str, int]]:
    """For how long they wait, and how many of them are retries, per consumer."""
    ages: dict[str, float] = {}
    due: dict[str, int] = {}
    for consumer, state in waiting:
        age, number = connection.execute(RUNNABLE, (consumer, state, now)).fetchone()
        if number:
            ages[consumer] = max(ages.get(consumer, 0.0), age)
        if number and state == "retrying":
            due[consumer] = number
    return ages, due


def _age(rows: sqlite3.Cursor) -> float:
    """What the one row says, 0 when there is none, or its time has not come."""
    found = rows.fetchone()
    return 0.0 if found is None else max(0.0, float(found[0]))

"""Counting: the figures that must add up, in one statement and so in one snapshot."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from posthouse.store import Counts, HeldState, Sums
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW

AHEAD = "cursors of the outbox are ahead of the server: it has forgotten what it said, or they are those of another"
AHEAD_FIX = "the next lease of a relay sends everything again that is left in the outbox"

MOST = 5_000
"""Rows of a backlog that are counted at every look; of a longer one the rest is estimated."""

GAPS = 100
"""Gaps of a consumer past their deadline that are counted at every look."""

STRANGE = ("strange quarantined", "strange skipped")
"""States in the tally of held frames in which no event could be read."""

# Rows that were written after a shard was last dealt with, in a snapshot `seen`: by transactions that came later, or that were
# open then. Both are found by index, so that what was sent is never read.
LATER = "FROM posthouse.outbox p WHERE p.shard = l.number AND p.xid >= pg_snapshot_xmax(l.seen)"
OPEN_THEN = """
FROM pg_snapshot_xip(l.seen) x JOIN posthouse.outbox p ON p.shard = l.number AND p.xid = x
WHERE pg_visible_in_snapshot(x, pg_current_snapshot())
"""
SHARDS = """
(SELECT k.number, coalesce(b.s2, k.s1) AS seen FROM posthouse.shard k LEFT JOIN posthouse.backlog b ON b.number = k.backlog) l
"""

# Those of a long backlog that were not read yet.
UNREAD = """
FROM posthouse.outbox p WHERE p.id > b.last_id AND p.id <= b.hi_id AND pg_visible_in_snapshot(p.xid, b.s2)
    AND EXISTS (SELECT 1 FROM posthouse.shard k
        WHERE k.number = p.shard AND k.backlog = b.number AND NOT pg_visible_in_snapshot(p.xid, k.s1))
"""

# What waits in the outbox, per topic, and how long ago the oldest was written, by the clock that wrote it: all of it, or as many
# as the second parameter says.
UNSENT = f"""
SELECT 'backlog' AS what, w.topic AS a, '' AS b, count(*) AS n, 0::bigint AS m,
    extract(epoch FROM clock_timestamp() - min(w.written_at))::double precision AS seconds FROM (
    (SELECT o.* FROM {SHARDS} CROSS JOIN LATERAL (
        SELECT p.topic, p.written_at {LATER} UNION ALL SELECT p.topic, p.written_at {OPEN_THEN}) o LIMIT $2::bigint)
    UNION ALL
    (SELECT o.* FROM posthouse.backlog b CROSS JOIN LATERAL (SELECT p.topic, p.written_at {UNREAD}) o LIMIT $2::bigint)) w
GROUP BY w.topic
"""

# The first of these rows in each shard, for those that are not counted, and how long ago it was written.
FIRST_UNSENT = f"""
SELECT 'first', o.topic, '', 0, o.id, extract(epoch FROM clock_timestamp() - o.written_at)::double precision
FROM {SHARDS} CROSS JOIN LATERAL (
    (SELECT p.id, p.topic, p.written_at {LATER} ORDER BY p.xid LIMIT 1)
    UNION ALL (SELECT p.id, p.topic, p.written_at {OPEN_THEN} ORDER BY x LIMIT 1)) o
UNION ALL SELECT 'first', o.topic, '', 0, o.id, extract(epoch FROM clock_timestamp() - o.written_at)::double precision
FROM posthouse.backlog b CROSS JOIN LATERAL (SELECT p.id, p.topic, p.written_at {UNREAD} ORDER BY p.id LIMIT 1) o
"""

# What is kept as sums, told apart by the first column.
SUMS = """
SELECT 'sent' AS what, topic AS a, '' AS b, sum(count)::bigint AS n, 0::bigint AS m, 0::double precision AS seconds
FROM posthouse.sent GROUP BY topic
UNION ALL SELECT 'applied', consumer, topic, sum(applied)::bigint, sum(skipped)::bigint, 0
FROM (SELECT * FROM posthouse.applied_count UNION ALL SELECT * FROM posthouse.applied) t GROUP BY consumer, topic
UNION ALL SELECT t.kind || ' ' || t.state, t.name, t.topic, t.number, 0, 0 FROM posthouse.tallied() t WHERE t.kind <> 'failure'
UNION ALL SELECT 'lost', consumer, topic, lost, 0, 0 FROM posthouse.loss WHERE lost <> 0
"""

# Every figure, told apart in the same way.
FIGURES = f"""
{SUMS}
UNION ALL {UNSENT}
UNION ALL {FIRST_UNSENT}
UNION ALL SELECT 'drawn', '', '', coalesce(pg_sequence_last_value('posthouse.outbox_id_seq'), 0), 0, 0
UNION ALL SELECT 'overdue', e.consumer, e.topic, count(*), 0, 0
FROM (SELECT DISTINCT t.name FROM posthouse.tallied() t WHERE t.kind = 'held' AND t.state = 'gap') c CROSS JOIN LATERAL (
    SELECT h.consumer, h.topic FROM posthouse.held h
    WHERE h.consumer = c.name AND h.state = 'gap' AND h.next_at <= (SELECT {NOW})
    ORDER BY h.next_at LIMIT CASE WHEN $2::bigint IS NOT NULL THEN {GAPS} END) e
GROUP BY e.consumer, e.topic
UNION ALL SELECT 'runs', to_char(m.run_since, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'),
    CASE WHEN m.run_since > clock_timestamp() - interval '1 day' THEN 'lately' ELSE '' END, m.runs, posthouse.is_ahead()::int, 0
FROM posthouse.meta m
"""

# Clear away lines of what was applied and keep their sum …
SUM_UP_APPLIED = """
WITH gone AS (
    DELETE FROM posthouse.applied_count WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM posthouse.applied_count t LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING consumer, topic, applied, skipped
), kept AS (
    INSERT INTO posthouse.applied AS a (consumer, topic, applied, skipped)
    SELECT consumer, topic, sum(applied), sum(skipped) FROM gone GROUP BY consumer, topic ORDER BY consumer, topic
    ON CONFLICT (consumer, topic) DO UPDATE
    SET applied = a.applied + excluded.applied, skipped = a.skipped + excluded.skipped)
SELECT count(*) FROM gone
"""

# … and those of the tally.
SUM_UP = """
WITH gone AS (
    DELETE FROM posthouse.tally_change WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM posthouse.tally_change t LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING kind, name, topic, state, number
), kept AS (
    INSERT INTO posthouse.tally AS t (kind, name, topic, state, number)
    SELECT kind, name, topic, state, sum(number) FROM gone GROUP BY kind, name, topic, state ORDER BY kind, name, topic, state
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = t.number + excluded.number)
SELECT count(*) FROM gone
"""

# Whoever came to nothing is not remembered.
FORGET = """
DELETE FROM posthouse.tally WHERE ctid = ANY (ARRAY(
    SELECT t.ctid FROM posthouse.tally t WHERE t.number = 0 LIMIT $1 FOR UPDATE SKIP LOCKED))
"""


async def counted(database: Database, now: float | None) -> Counts:
    """The figures; `now` is None for the database's own clock."""
    return counts_of(await database.run(FIGURES, now, None))


async def summed(database: Database) -> Sums:
    """What was sent and accounted for."""
    return counts_of(await database.run(SUMS)).sums


async def sum_up(database: Database, limit: int) -> None:
    """Sum up all lines, so many at a time, since every look reads those that are left. Nobody who adds one waits for it."""
    for statement in (SUM_UP_APPLIED, SUM_UP):
        while (await database.run(statement, limit)).scalar() == limit:
            pass
    await database.run(FORGET, limit)


def counts_of(rows: Sequence[Sequence[Any]], most: int | None = None) -> Counts:
    """From the columns of FIGURES, or of SUMS alone, `most` being how many of a backlog were counted; rows of other kinds count for nothing here."""
    kinds = kinds_of(rows)
    applied = kinds["applied"]
    given_up = Counter({(consumer, topic): skipped for consumer, topic, _, skipped, _ in applied})
    held: dict[tuple[str, str, HeldState], int] = {}
    strange: Counter[tuple[str, str]] = Counter()
    strange_skipped: dict[tuple[str, str], int] = {}
    stuck: Counter[str] = Counter()
    for what, found in kinds.items():
        kind, _, state = what.partition(" ")
        for name, topic, number, *_ in found if kind in ("held", "stuck") else ():
            if kind == "stuck":
                stuck[topic] += number
            elif state in STRANGE:
                strange[name, topic] += number
                if state == STRANGE[1]:
                    strange_skipped[name, topic] = number
            elif state == "skipped":
                given_up[name, topic] += number
            else:
                held[name, topic, cast("HeldState", state)] = number
    backlog, estimated = _backlog(kinds, most)
    sent = {topic: number for topic, _, number, *_ in kinds["sent"]}
    topics = sorted({*backlog, *sent, *stuck})
    unsent = {topic: backlog.get(topic, 0) + stuck.get(topic, 0) for topic in topics}
    return Counts(
        committed={topic: unsent[topic] + sent.get(topic, 0) for topic in topics},
        unsent=_without_zeros(unsent),
        stuck=sum(stuck.values()),
        refused={topic: number for _, topic, number, *_ in kinds["stuck refused"]},
        applied=_without_zeros({(consumer, topic): number for consumer, topic, number, *_ in applied}),
        skipped=+given_up,
        held=held,
        strange=dict(strange),
        strange_skipped=strange_skipped,
        lost={(consumer, topic): number for consumer, topic, number, *_ in kinds["lost"]},
        overdue={(consumer, topic): number for consumer, topic, number, *_ in kinds["overdue"]},
        timers=sum(number for _, _, number, *_ in kinds["timer "]),
        notes=[
            note
            for since, lately, runs, ahead, _ in kinds["runs"]
            for note in run_notes(runs, since, lately=bool(lately), ahead=bool(ahead))
        ],
        estimated=estimated,
    )


def kinds_of(rows: Sequence[Sequence[Any]]) -> Mapping[str, Sequence[Sequence[Any]]]:
    """The other columns of all rows, by the first one."""
    kinds: defaultdict[str, list[Sequence[Any]]] = defaultdict(list)
    for what, *columns in rows:
        kinds[what].append(columns)
    return kinds


def _backlog(kinds: Mapping[str, Sequence[Sequence[Any]]], most: int | None) -> tuple[Mapping[str, int], bool]:
    """What waits, per topic, and whether that is an estimate: all ids that were drawn since the first one that waits, shared out as
    those are that were counted."""
    counted = Counter({topic: number for topic, _, number, *_ in kinds["backlog"]})
    if most is None or counted.total() < most:
        return counted, False
    drawn = kinds["drawn"][0][2] - min(first for _, _, _, first, _ in kinds["first"]) + 1
    share = max(1.0, drawn / counted.total())
    return {topic: math.ceil(number * share) for topic, number in counted.items()}, True


def run_notes(runs: int, since: str, *, lately: bool, ahead: bool) -> list[str]:
    """What people should know of the runs of the server: `runs` that relays have seen, the last `since` then."""
    notes = []
    if lately and runs > 1:
        notes.append(
            f"its server began another run at {since}, the {runs - 1}. time: it crashed, was restarted or promoted, or a backup "
            "was restored; what was in flight was read again"
        )
    if ahead:
        notes.append(f"{AHEAD}: {AHEAD_FIX}")
    return notes


def _without_zeros(figures: dict[Any, int]) -> dict[Any, int]:
    return {name: number for name, number in figures.items() if number}

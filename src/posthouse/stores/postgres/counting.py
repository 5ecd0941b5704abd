"""Counting: the figures of a store, in one statement and so in one snapshot."""

from __future__ import annotations

from collections import Counter
from typing import Any

from posthouse.store import Counts
from posthouse.stores.postgres.database import Database

# Every figure, told apart by its first column.
FIGURES = """
SELECT 'backlog' AS what, o.topic AS a, '' AS b, count(*) AS n, 0::bigint AS m
FROM posthouse.lane l LEFT JOIN posthouse.backlog b ON b.number = l.backlog CROSS JOIN LATERAL (
    SELECT p.topic FROM posthouse.outbox p
    WHERE p.lane = l.number AND p.xid >= pg_snapshot_xmin(l.s1) AND NOT pg_visible_in_snapshot(p.xid, l.s1)
        AND NOT coalesce(pg_visible_in_snapshot(p.xid, b.s2) AND p.id <= b.last_id, false)) o
GROUP BY o.topic
UNION ALL SELECT 'sent', topic, '', sum(count)::bigint, 0 FROM posthouse.sent GROUP BY topic
UNION ALL SELECT 'stuck', topic, '', count(*), 0 FROM posthouse.stuck GROUP BY topic
UNION ALL SELECT 'applied', consumer, topic, sum(applied)::bigint, sum(skipped)::bigint
FROM (SELECT * FROM posthouse.tally UNION ALL SELECT * FROM posthouse.applied) t GROUP BY consumer, topic
UNION ALL SELECT 'held ' || state, consumer, topic, count(*), 0
FROM posthouse.held GROUP BY consumer, topic, state
UNION ALL SELECT 'timers', '', '', count(*), 0 FROM posthouse.timer
"""


async def counted(database: Database) -> Counts:
    """The figures."""
    found: dict[str, dict[Any, Any]] = {"backlog": {}, "sent": {}, "stuck": {}, "applied": {}, "held": {}}
    given_up: Counter[tuple[str, str]] = Counter()
    timers = 0
    rows: Any = await database.run(FIGURES)
    for what, first, second, number, skipped in rows:
        if what == "timers":
            timers = number
        elif what == "applied":
            found["applied"][first, second] = number
            given_up[first, second] += skipped
        elif what == "held skipped":
            given_up[first, second] += number
        elif what.startswith("held "):
            found["held"][first, second, what.removeprefix("held ")] = number
        else:
            found[what][first] = number
    backlog, sent, stuck = found["backlog"], found["sent"], found["stuck"]
    topics = sorted({*backlog, *sent, *stuck})
    unsent = {topic: backlog.get(topic, 0) + stuck.get(topic, 0) for topic in topics}
    return Counts(
        committed={topic: unsent[topic] + sent.get(topic, 0) for topic in topics},
        unsent=_without_zeros(unsent),
        stuck=sum(stuck.values()),
        applied=_without_zeros(found["applied"]),
        skipped=+given_up,
        held=found["held"],
        timers=timers,
    )


def _without_zeros(figures: dict[Any, int]) -> dict[Any, int]:
    return {name: number for name, number in figures.items() if number}

"""Counting: the figures that must add up, in one statement and so in one snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from posthouse.store import Counts
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW

AHEAD = "cursors of the outbox are ahead of the server: it has forgotten what it said, or they are those of another"
AHEAD_FIX = "the next lease of a relay sends everything again that is left in the outbox"

# Every figure, told apart by its first column.
FIGURES = f"""
SELECT 'backlog' AS what, o.topic AS a, '' AS b, count(*) AS n, 0::bigint AS m
FROM posthouse.shard l LEFT JOIN posthouse.backlog b ON b.number = l.backlog CROSS JOIN LATERAL (
    SELECT p.topic FROM posthouse.outbox p
    WHERE p.shard = l.number AND p.xid >= pg_snapshot_xmin(l.s1) AND NOT pg_visible_in_snapshot(p.xid, l.s1)
        AND NOT coalesce(pg_visible_in_snapshot(p.xid, b.s2) AND p.id <= b.last_id, false)) o
GROUP BY o.topic
UNION ALL SELECT 'sent', topic, '', sum(count)::bigint, 0 FROM posthouse.sent GROUP BY topic
UNION ALL SELECT 'stuck', topic, '', count(*), count(*) FILTER (WHERE quarantined) FROM posthouse.stuck GROUP BY topic
UNION ALL SELECT 'applied', consumer, topic, sum(applied)::bigint, sum(skipped)::bigint
FROM (SELECT * FROM posthouse.applied_count UNION ALL SELECT * FROM posthouse.applied) t GROUP BY consumer, topic
UNION ALL SELECT CASE WHEN type = '' AND state IN ('quarantined', 'skipped') THEN 'strange' ELSE 'held ' || state END AS what,
    consumer, topic, count(*), count(*) FILTER (WHERE state = 'gap' AND next_at <= {NOW})
FROM posthouse.held GROUP BY consumer, topic, what
UNION ALL SELECT 'lost', consumer, topic, lost, 0 FROM posthouse.loss WHERE lost <> 0
UNION ALL SELECT 'timers', '', '', count(*), 0 FROM posthouse.timer
UNION ALL SELECT 'runs', to_char(m.run_since, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'),
    CASE WHEN m.run_since > clock_timestamp() - interval '1 day' THEN 'lately' ELSE '' END, m.runs, posthouse.is_ahead()::int
FROM posthouse.meta m
"""


async def counted(database: Database, now: float | None) -> Counts:
    """The figures; `now` is None for the database's own clock."""
    return counts_of(await database.run(FIGURES, now))


def counts_of(rows: Sequence[Sequence[Any]]) -> Counts:
    """From the columns of FIGURES; rows of other kinds count for nothing here."""
    found: dict[str, dict[Any, Any]] = {
        what: {} for what in ("backlog", "sent", "stuck", "refused", "applied", "held", "strange", "lost", "overdue")
    }
    given_up: Counter[tuple[str, str]] = Counter()
    timers = 0
    notes: list[str] = []
    for what, first, second, number, skipped in rows:
        if what == "timers":
            timers = number
        elif what == "runs":
            notes = run_notes(number, first, lately=bool(second), ahead=bool(skipped))
        elif what == "applied":
            found["applied"][first, second] = number
            given_up[first, second] += skipped
        elif what == "held skipped":
            given_up[first, second] += number
        elif what in ("strange", "lost"):
            found[what][first, second] = number
        elif what.startswith("held "):
            found["held"][first, second, what.removeprefix("held ")] = number
            if what == "held gap":
                found["overdue"][first, second] = skipped
        elif what in found:
            found[what][first] = number
            if what == "stuck":
                found["refused"][first] = skipped
    backlog, sent, stuck = found["backlog"], found["sent"], found["stuck"]
    topics = sorted({*backlog, *sent, *stuck})
    unsent = {topic: backlog.get(topic, 0) + stuck.get(topic, 0) for topic in topics}
    return Counts(
        committed={topic: unsent[topic] + sent.get(topic, 0) for topic in topics},
        unsent=_without_zeros(unsent),
        stuck=sum(stuck.values()),
        refused=_without_zeros(found["refused"]),
        applied=_without_zeros(found["applied"]),
        skipped=+given_up,
        held=found["held"],
        strange=found["strange"],
        lost=found["lost"],
        overdue=_without_zeros(found["overdue"]),
        timers=timers,
        notes=notes,
    )


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

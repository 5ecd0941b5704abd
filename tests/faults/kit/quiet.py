"""Quiet: whether anything is left to move, read from the books without the code under test."""

from __future__ import annotations

from collections.abc import Collection

from tests.faults.kit.books import BEING_MADE, Books

TIMERS = "SELECT count(*) FROM posthouse_timer"

UNSENT = """
SELECT (SELECT coalesce(max(id), 0) > (SELECT min(cursor) FROM posthouse_shard) FROM posthouse_outbox)
    + (SELECT count(*) FROM posthouse_stuck)
"""

UNSENT_IN_POSTGRES = """
SELECT (SELECT count(*) FROM posthouse_shard l LEFT JOIN posthouse_backlog b ON b.number = l.backlog
        JOIN posthouse_outbox o ON o.shard = l.number
        WHERE NOT pg_visible_in_snapshot(o.xid, l.s1)
            AND NOT coalesce(pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id, false))
    + (SELECT count(*) FROM posthouse_stuck)
"""

PENDING = """
SELECT coalesce(sum(h.stored - c.acked), 0) FROM heads h JOIN cursors c ON c.topic = h.topic AND c.partition = h.partition
WHERE c.grp = ? OR substr(c.grp, 1, length(?) + 1) = ? || '.'
"""

# What waits behind a dead event waits for an operator.
UNRUN = """
SELECT count(*) FROM posthouse_held h WHERE state IN ('retrying', 'gap') OR (state = 'blocked' AND NOT EXISTS (
    SELECT 1 FROM posthouse_held d WHERE d.state = 'dead' AND d.consumer = h.consumer AND d.tenant = h.tenant
        AND d.topic = h.topic AND d.key = h.key))
"""


# Service, part, book and question, along the way of an event: what was found empty stays empty while nobody produces.
QUESTIONS = (
    ("orders", "timers", "orders", TIMERS, ()),
    ("orders", "relay", "orders", UNSENT, ()),
    ("billing", "consumers", "log", PENDING, ("billing",) * 3),
    ("billing", "consumers", "billing", UNRUN, ()),
    ("billing", "relay", "billing", UNSENT, ()),
    ("orders", "consumers", "log", PENDING, ("orders",) * 3),
    ("orders", "consumers", "orders", UNRUN, ()),
)


class Quiet:
    """Keeps the books open for looking."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def reached(self, services: Collection[str], parts: Collection[str]) -> bool:
        """Whether these parts of these services have nothing left to do."""
        try:
            return not any(
                self._books.ask(book, self._worded(book, question), parameters)[0][0]
                for service, part, book, question, parameters in QUESTIONS
                if service in services and part in parts
            )
        except BEING_MADE:
            self._books.close()
            return False

    def _worded(self, book: str, question: str) -> str:
        return UNSENT_IN_POSTGRES if question is UNSENT and self._books.in_database(book) else question

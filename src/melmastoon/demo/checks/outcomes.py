"""How bookings and sagas ended. Known from reservation's own rows: one per booking, and one per saga."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from melmastoon.demo.books import Books

UNFINISHED = frozenset(("running", "compensating"))
"""Where no saga may rest; the others are names that an operator can act upon."""


def bookings(books: Books) -> Mapping[str, int]:
    """How many there are of each status; those that were cancelled by their reason as well."""
    found: Counter[str] = Counter()
    for status, reason in books.rows("reservation", "SELECT status, reason FROM bookings"):
        found[f"{status}: {reason}" if reason else status] += 1
    return dict(sorted(found.items()))


def sagas(books: Books) -> Mapping[str, Mapping[str, int]]:
    """How many sagas of each kind ended how. Cancellations are a choreography: they have no row, and count as completed once
    the nights are for sale again or there were none."""
    found: dict[str, Counter[str]] = {}
    for saga, status in books.rows("reservation", f"SELECT saga, status FROM {books.library('saga')}"):
        found.setdefault(saga, Counter())[status] += 1
    return {saga: dict(sorted(counts.items())) for saga, counts in sorted(found.items())}


def compensations(books: Books) -> Mapping[str, int]:
    """How many sagas were compensated, and why."""
    sql = f"SELECT saga, reason FROM {books.library('saga')} WHERE status IN ('compensated', 'cancelled')"
    return dict(sorted(Counter(f"{saga}: {reason}" for saga, reason in books.rows("reservation", sql)).items()))


def unfinished(sagas: Mapping[str, Mapping[str, int]]) -> int:
    """Sagas that rest where none may."""
    return sum(count for counts in sagas.values() for status, count in counts.items() if status in UNFINISHED)

"""How bookings and sagas ended. Known from reservation's own rows: one per booking, and one per saga."""

from __future__ import annotations

import json
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


def partials(books: Books) -> Mapping[str, int]:
    """How many sagas of each kind rested with a part undone at some time, whatever became of them: their histories say it."""
    saga, turn = books.library("saga"), books.library("saga_turn")
    sql = f"SELECT s.saga, s.number, t.record FROM {saga} s JOIN {turn} t ON t.number = s.number"
    rested = {
        (name, number)
        for name, number, record in books.rows("reservation", sql)
        if json.loads(record).get("status") == "partial"
    }
    return dict(sorted(Counter(name for name, _ in rested).items()))


def alerts(books: Books) -> int:
    """How often somebody on call was written to; each alert is one mail, whatever else it is."""
    said = books.of("notification.message.dispatched.v1")
    return sum(1 for fact in said if (fact.data["kind"], fact.data["channel"]) == ("alert", "email"))


def begun_again(books: Books) -> int:
    """How many sagas are another attempt of one that was called off."""
    return len(books.rows("reservation", f"SELECT 1 FROM {books.library('saga')} WHERE attempt > 1"))


def stays_extended(books: Books) -> int:
    """How many changes of dates were asked for by guests who were in."""
    came = {(fact.tenant, fact.data["booking_id"]): fact.at for fact in books.of("reservation.booking.checked_in.v1")}
    wanted = [fact for fact in books.of("reservation.booking.dates_changed.v1") if fact.data.get("attempt", 1) == 1]
    return sum(1 for fact in wanted if (at := came.get((fact.tenant, fact.data["booking_id"]))) and fact.at > at)


def unfinished(sagas: Mapping[str, Mapping[str, int]]) -> int:
    """Sagas that rest where none may."""
    return sum(count for counts in sagas.values() for status, count in counts.items() if status in UNFINISHED)

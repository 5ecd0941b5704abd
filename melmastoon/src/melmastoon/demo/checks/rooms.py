"""No night of a room is sold twice.

Known in two ways, both without inventory's own table of nights. First, what inventory said is replayed in the order in which
it was committed: who has which room for which nights at every moment. Second, the bookings of reservation that came about are
laid beside each other at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from melmastoon.demo.books import Books, Fact

Night = tuple[str, str, date]
"""Tenant, room, night."""


def oversold(books: Books) -> Sequence[str]:
    """Every (room, night) that two had, in words."""
    return [*_replayed(books), *_beside_each_other(books)]


def _replayed(books: Books) -> Iterator[str]:
    owner: dict[Night, str] = {}
    window: dict[tuple[str, str], set[Night]] = {}
    for fact in books.facts:
        if fact.service != "inventory" or ".allocation." not in fact.type:
            continue
        booking = (fact.tenant, str(fact.data["booking_id"]))
        before = window.get(booking, set())
        after = _after(fact, before)
        for night in before - after:
            owner.pop(night, None)
        for night in sorted(after - before):
            if night in owner:
                yield f"{night[1]} was given to {booking[1]} for {night[2]} while {owner[night]} had it"
            owner[night] = booking[1]
        window[booking] = after


def _after(fact: Fact, before: set[Night]) -> set[Night]:
    """The nights that a booking has after this."""
    if fact.type.endswith("released.v1"):
        if fact.data["reason"] == "checked_out_early":
            return {night for night in before if night[2] < fact.at.date()}
        return set()
    data = fact.data
    return {
        (fact.tenant, str(data["room_id"]), night)
        for night in _nights(date.fromisoformat(data["check_in"]), date.fromisoformat(data["check_out"]))
    }


def _beside_each_other(books: Books) -> Iterator[str]:
    sql = """SELECT tenant, booking_id, room_id, check_in, check_out FROM bookings
        WHERE status NOT IN ('held', 'cancelled', 'no_show') AND room_id <> ''"""
    owner: dict[Night, str] = {}
    for tenant, booking_id, room_id, check_in, check_out in books.rows("reservation", sql):
        for night in _nights(date.fromisoformat(check_in), date.fromisoformat(check_out)):
            other = owner.setdefault((tenant, room_id, night), booking_id)
            if other != booking_id:
                yield f"{room_id} is booked by {other} and {booking_id} for {night}"


def _nights(check_in: date, check_out: date) -> Iterator[date]:
    for day in range((check_out - check_in).days):
        yield check_in + timedelta(days=day)

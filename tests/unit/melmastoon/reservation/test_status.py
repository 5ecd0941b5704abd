"""The life of a booking as one table."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from melmastoon.reservation.status import NEXT, OVER, Status, check
from posthouse import Reject

ALL: tuple[Status, ...] = get_args(Status)


def test_every_status_is_in_the_table() -> None:
    assert set(NEXT) == set(ALL)


@pytest.mark.parametrize(("before", "after"), [(b, a) for b in ALL for a in NEXT[b]])
def test_what_the_table_allows_is_allowed(before: Status, after: Status) -> None:
    check("b1", before, after)


@pytest.mark.parametrize(("before", "after"), [(b, a) for b, a in product(ALL, ALL) if a not in NEXT[b]])
def test_anything_else_is_refused_in_a_sentence(before: Status, after: Status) -> None:
    with pytest.raises(Reject, match=f"^booking b1 cannot become {after}: it is {before}, and "):
        check("b1", before, after)


def test_the_sentence_says_what_could_follow() -> None:
    with pytest.raises(Reject, match=r"it is checked_in, and it can become dates_changing or check_out_started$"):
        check("b1", "checked_in", "cancelled")
    with pytest.raises(Reject, match=r"it is cancelled, and nothing follows that$"):
        check("b1", "cancelled", "confirmed")


def test_a_booking_is_over_when_checked_out_cancelled_or_a_no_show() -> None:
    assert {"checked_out", "cancelled", "no_show"} == OVER


def test_every_status_can_be_reached_from_held() -> None:
    reached: set[Status] = set()
    found: set[Status] = {"held"}
    while found - reached:
        reached |= found
        found = {after for before in reached for after in NEXT[before]}
    assert reached == set(ALL)

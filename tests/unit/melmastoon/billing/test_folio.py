"""A folio, as pure functions: what may happen to one, and what it becomes."""

from __future__ import annotations

import pytest

from melmastoon.billing.folio import Account, Folio, FolioFact, charge, close, evolve, extra, open_for, refund
from posthouse import Reject

ACCOUNT = Account(booking_id="b1", currency="USD")


def folio_of(*facts: FolioFact | None, start: Folio | None = None) -> Folio:
    folio = start or Folio()
    for fact in facts:
        if fact is not None:
            folio = evolve(folio, fact)
    return folio


def test_a_folio_is_the_sum_of_its_lines() -> None:
    folio = folio_of(
        charge(Folio(), ACCOUNT, "l1", "stay", 20_000),
        charge(Folio(), ACCOUNT, "l2", "delta", 3_000, "c1"),
        refund(Folio(), ACCOUNT, "l3", 500),
        open_for(Folio(), ACCOUNT),
    )
    assert (folio.charged_cents, folio.refunded_cents, folio.cost_cents) == (23_000, 500, 22_500)
    assert folio.opened
    assert folio.stay_posted
    assert folio.lines == {"l1", "l2", "l3"}


def test_a_line_that_was_posted_is_not_posted_again_and_who_asks_is_told_how_the_folio_stands() -> None:
    folio = folio_of(
        open_for(Folio(), ACCOUNT),
        charge(Folio(), ACCOUNT, "l1", "extra", 5),
        refund(Folio(), ACCOUNT, "l2", 5),
        close(Folio(), ACCOUNT),
    )
    assert extra(folio, ACCOUNT, "l1", 5) is None
    assert refund(folio, ACCOUNT, "l2", 5) is None
    assert folio_of(open_for(folio, ACCOUNT), close(folio, ACCOUNT), start=folio) == folio


def test_a_closed_folio_takes_no_charge_but_hides_no_refund() -> None:
    closed = folio_of(open_for(Folio(), ACCOUNT), close(Folio(), ACCOUNT))
    with pytest.raises(Reject, match="fol-b1 is closed"):
        charge(closed, ACCOUNT, "l1", "extra", 5)
    assert refund(closed, ACCOUNT, "l1", 5) is not None


@pytest.mark.parametrize("cents", [0, -5])
def test_a_charge_of_nothing_is_none(cents: int) -> None:
    with pytest.raises(Reject, match="more than 0"):
        charge(Folio(), ACCOUNT, "l1", "extra", cents)


def test_a_stay_may_be_free() -> None:
    assert folio_of(charge(Folio(), ACCOUNT, "l1", "stay", 0)).stay_posted


def test_there_are_no_extras_before_check_in() -> None:
    with pytest.raises(Reject, match="after check-in"):
        extra(Folio(), ACCOUNT, "l1", 5)

"""Where an event stands in the line of its key."""

from __future__ import annotations

import pytest

from posthouse.receiving.order import OrderDecision, classify, is_outlived
from posthouse.store import InboxEntry, KeyPosition, Seen


def entry(sequence: int | None, event_id: str = "e", digest: bytes = b"d", lineage: int = 1) -> InboxEntry:
    return InboxEntry(
        topic="t", tenant="x", key="k", event_id=event_id, digest=digest, time=0.0, sequence=sequence, lineage=lineage
    )


def head(sequence: int, waiting: int | None = None, waiting_id: str | None = None, lineage: int = 1) -> KeyPosition:
    return KeyPosition(
        sequence=sequence, lineage=lineage, event_id="h", digest=b"h", waiting=waiting, waiting_id=waiting_id
    )


@pytest.mark.parametrize(
    ("known", "event", "expected"),
    [
        (None, entry(1), OrderDecision.NEXT),
        (None, entry(2), OrderDecision.GAP),
        (head(4), entry(5), OrderDecision.NEXT),
        (head(4), entry(6), OrderDecision.GAP),
        (head(4), entry(3), OrderDecision.DUPLICATE),
        (head(4), entry(4, "h", b"h"), OrderDecision.DUPLICATE),
        (head(4), entry(4, "other", b"h"), OrderDecision.FORK),
        (head(4), entry(4, "h", b"other content"), OrderDecision.FORK),
        (head(4, waiting=5, waiting_id="e"), entry(5), OrderDecision.DUPLICATE),
        (head(4, waiting=5, waiting_id="other"), entry(5), OrderDecision.FORK),
        (head(4, waiting=5, waiting_id="w"), entry(6), OrderDecision.BLOCKED),
        (head(4, waiting=6, waiting_id="w"), entry(5), OrderDecision.NEXT),
        (head(4, waiting=6, waiting_id="w"), entry(7), OrderDecision.GAP),
        (head(4, lineage=2), entry(5, lineage=1), OrderDecision.FORK),
        (head(4, lineage=2), entry(3, lineage=1), OrderDecision.DUPLICATE),
        (head(4), entry(5, lineage=2), OrderDecision.NEXT),
        (head(4), entry(3, lineage=2), OrderDecision.FORK),
        (head(4), entry(4, "h", b"h", lineage=2), OrderDecision.FORK),
    ],
)
def test_an_ordered_event_is_judged_by_its_number(
    known: KeyPosition | None, event: InboxEntry, expected: OrderDecision
) -> None:
    assert classify(known, event, adopt=False) is expected


def test_a_consumer_that_joined_late_adopts_the_first_number_it_sees() -> None:
    assert classify(None, entry(57), adopt=True) is OrderDecision.NEXT
    assert classify(head(57), entry(59), adopt=True) is OrderDecision.GAP


def test_a_number_before_a_late_beginning_is_passed_over() -> None:
    begun = KeyPosition(sequence=6, lineage=1, event_id="", digest=b"", waiting=7, waiting_id="e7")
    assert classify(begun, entry(6), adopt=True) is OrderDecision.DUPLICATE
    assert classify(begun, entry(8), adopt=True) is OrderDecision.BLOCKED


def test_an_unordered_event_is_judged_by_its_id_and_content() -> None:
    assert classify(None, entry(None), adopt=False) is OrderDecision.NEXT
    assert classify(Seen(digest=b"d"), entry(None), adopt=False) is OrderDecision.DUPLICATE
    assert classify(Seen(digest=b"x"), entry(None), adopt=False) is OrderDecision.FORK


def drawn(milliseconds: int) -> str:
    """A UUIDv7 of a moment."""
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7abc-8def-0123456789ab"


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (-5_000, OrderDecision.DUPLICATE),
        (0, OrderDecision.DUPLICATE),
        (1, OrderDecision.FORK),
        (2_100, OrderDecision.FORK),
    ],
)
def test_a_lower_number_with_an_id_that_is_newer_than_all_that_its_key_has_passed_is_a_fork(
    later: int, expected: OrderDecision
) -> None:
    """The head's own id may be an old one: it was drawn early in a long transaction."""
    newest = 1_800_000_000_000
    known = KeyPosition(sequence=9, lineage=1, event_id=drawn(newest - 3_600_000), digest=b"h", newest=newest)
    assert classify(known, entry(5, drawn(newest + later)), adopt=False) is expected


@pytest.mark.parametrize("other", ["e", "", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "c232ab00-9414-11ec-b3c8-9f68deced846"])
def test_ids_that_do_not_tell_when_they_were_drawn_prove_nothing(other: str) -> None:
    known = KeyPosition(sequence=9, lineage=1, event_id=drawn(1), digest=b"h", newest=1)
    assert classify(known, entry(5, other), adopt=False) is OrderDecision.DUPLICATE
    known = KeyPosition(sequence=9, lineage=1, event_id=other, digest=b"h")
    assert classify(known, entry(5, drawn(1_800_000_000_000)), adopt=False) is OrderDecision.DUPLICATE


def test_a_head_that_applied_nothing_knows_no_lineage() -> None:
    """Number 2, of a newer lineage, came first and is held; number 1 was said before the server was replaced."""
    begun = KeyPosition(sequence=0, lineage=2, event_id="", digest=b"", waiting=2, waiting_id="e2")
    assert classify(begun, entry(1, lineage=1), adopt=False) is OrderDecision.NEXT
    assert not is_outlived(entry(1, lineage=1), begun)


@pytest.mark.parametrize(
    ("sequence", "lineage", "expected"),
    [
        (3, 1, OrderDecision.DUPLICATE),
        (4, 1, OrderDecision.FORK),
        (2, 2, OrderDecision.FORK),
        (4, 2, OrderDecision.FORK),
        (2, 3, OrderDecision.FORK),
        (4, 3, OrderDecision.DUPLICATE),
        (6, 3, OrderDecision.DUPLICATE),
        (7, 3, OrderDecision.FORK),
        (7, 4, OrderDecision.DUPLICATE),
        (9, 3, OrderDecision.FORK),
        (9, 4, OrderDecision.NEXT),
    ],
)
def test_a_number_is_a_duplicate_only_under_the_lineage_under_which_its_key_went_past_it(
    sequence: int, lineage: int, expected: OrderDecision
) -> None:
    """Lineage 2 gave 2 and 3 again, and none of it came; 3 took over at 4, and 4 at 7."""
    known = KeyPosition(sequence=8, lineage=4, event_id="h", digest=b"h", lineages=((1, 3), (3, 6)))
    assert classify(known, entry(sequence, lineage=lineage), adopt=False) is expected


def test_what_is_older_than_a_late_beginning_is_passed_over_and_what_a_newer_lineage_gave_again_is_not() -> None:
    begun = head(9, lineage=2)
    assert classify(begun, entry(5, lineage=1), adopt=True) is OrderDecision.DUPLICATE
    assert classify(begun, entry(5, lineage=3), adopt=True) is OrderDecision.FORK
    assert classify(begun, entry(9, lineage=1), adopt=True) is OrderDecision.FORK, "another event has this very number"


@pytest.mark.parametrize(
    ("sequence", "lineage", "lost"), [(5, 1, True), (6, 1, True), (4, 1, False), (5, 2, False), (6, 3, False)]
)
def test_what_waits_under_a_number_that_a_newer_lineage_gave_anew_was_lost(
    sequence: int, lineage: int, lost: bool
) -> None:
    assert is_outlived(entry(sequence, lineage=lineage), head(5, lineage=2)) is lost
    assert is_outlived(entry(sequence, lineage=lineage), entry(5, lineage=2)) is lost

"""What is missing for certain, whatever moves while it is read."""

from __future__ import annotations

import itertools
import random

import pytest

from posthouse.broker import Progress
from posthouse.watch.equation import Known, Missing, Place, Repeats, excused, missing, repeats


def at_broker(pending: int, stored: int, *, unsure: int | None = 0, uncounted: str = "") -> Progress:
    return Progress(stored=stored, pending=pending, truncated=False, whole=True, unsure=unsure, uncounted=uncounted)


def found(before: Place, progress: Progress, after: Place, waiting: int | None = 0) -> Missing:
    return missing(before, progress, after, history=True, waiting=waiting)


def test_where_nothing_moves_it_is_one_number() -> None:
    still = Place(sent=10, accounted=6)
    assert found(still, at_broker(4, 10), still) == Missing(0, 0)
    assert found(still, at_broker(1, 10), still) == Missing(3, 3)
    assert found(still, at_broker(6, 10), still) == Missing(-2, -2)


def test_what_was_applied_or_sent_between_the_readings_is_not_missing() -> None:
    before, after = Place(sent=10, accounted=6), Place(sent=13, accounted=9)
    bounds = found(before, at_broker(2, 12), after, waiting=2)
    assert bounds.least <= 0 <= bounds.most
    assert bounds.certain == 0


def test_more_than_may_be_counted_twice_is_too_many() -> None:
    still = Place(sent=10, accounted=10)
    assert found(still, at_broker(2, 10, unsure=2), still).certain == 0, "in hand, and applied"
    assert found(still, at_broker(2, 10, unsure=1), still).certain == -1
    assert found(still, at_broker(2, 12), still).certain == 0, "repeats on the broker"


def test_readings_narrow_each_other_until_something_changed() -> None:
    assert Missing(-3, 4).narrowed(Missing(-1, 6)) == Missing(-1, 4)
    assert Missing(3, 3).narrowed(Missing(0, 0)) == Missing(0, 0), "they were sent again"


WIDE = Missing(-40, 60)
"""What a look under load shows."""


def look(
    known: Known, bounds: Missing, *, lost: int = 0, again: Repeats | None = None, at: float = 0.0
) -> tuple[int, int]:
    return known.look(bounds, lost=lost, again=again, at=at)


@pytest.mark.parametrize("number", [2, -2])
def test_what_was_certain_once_stays_it_until_a_look_shows_less(number: int) -> None:
    known = Known()
    assert look(known, WIDE) == (0, 0)
    assert look(known, Missing(number, number)) == (number, 0)
    assert {look(known, WIDE) for _ in range(9)} == {(number, 0)}
    assert look(known, Missing(-1, 1)) == (number // 2, 0), "one of them was found"
    assert look(known, WIDE) == (number // 2, 0)
    assert look(known, Missing(0, 0)) == look(known, WIDE) == (0, 0)


def test_what_is_accepted_as_lost_under_load_is_not_missing_any_more() -> None:
    known = Known()
    look(known, Missing(5, 5), lost=1)
    assert look(known, WIDE, lost=3) == look(known, WIDE, lost=3) == (3, 0)
    assert look(known, WIDE, lost=9) == (0, 0)
    assert look(known, Missing(1, 50), lost=9) == look(known, WIDE, lost=9) == (1, 0)
    assert look(known, WIDE, lost=7) == (1, 0), "that some of them came is another matter"


def test_of_what_was_sent_again_under_load_nobody_can_tell_until_a_look_shows_it() -> None:
    known = Known()
    look(known, Missing(2, 2), again=Repeats(0, 0))
    assert look(known, WIDE, again=Repeats(-20, 30)) == (2, 0), "these may be first ones"
    assert look(known, WIDE, again=Repeats(1, 30)) == look(known, WIDE, again=Repeats(-20, 30)) == (1, 1)
    assert look(known, WIDE, again=Repeats(2, 2)) == (0, 2)
    assert look(known, Missing(2, 90), again=Repeats(2, 2)) == look(known, WIDE, again=Repeats(2, 30)) == (2, 0), (
        "others"
    )
    assert look(known, Missing(-9, 0), again=Repeats(2, 2)) == (0, 0)


def test_what_no_look_has_shown_for_an_hour_is_in_doubt() -> None:
    known = Known()
    look(known, Missing(2, 2))
    assert look(known, Missing(1, 60), at=3_000.0) == look(known, WIDE, at=6_600.0) == (2, 0)
    assert look(known, WIDE, at=6_601.0) == (0, 2)
    assert look(known, Missing(1, 60), at=6_602.0) == (2, 0)


@pytest.mark.parametrize(
    ("progress", "strange", "excuse"),
    [
        (at_broker(0, 5), 0, False),
        (at_broker(0, 5), 2, True),
        (at_broker(0, 5), 1, False),
        (at_broker(0, 5, uncounted="in other hands"), 0, True),
        (Progress(stored=5, pending=0, truncated=True), 0, True),
        (Progress(stored=5, pending=0, truncated=True, whole=True), 0, False),
    ],
)
def test_what_may_be_somewhere_all_the_same_is_not_called_missing(
    progress: Progress, strange: int, excuse: bool
) -> None:
    assert excused(progress, Place(5, 3, strange), 2) is excuse


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_steps_makes_a_false_alarm_and_no_loss_is_overstated(seed: int) -> None:
    """Events take their steps in any order between the readings: committed, stored, stored again, noted, handed out, applied,
    acknowledged, and with every second seed lost."""
    chance = random.Random(seed)
    committed: set[int] = set()
    noted: set[int] = set()
    applied: set[int] = set()
    log: list[int] = []
    acked: set[int] = set()
    """Places in the log that are acknowledged or gone."""
    handed: set[int] = set()

    def step() -> None:
        what = chance.choice(
            ("commit", "store", "note", "hand", "apply", "ack", "ack", *(("lose",) if seed % 2 else ()))
        )
        unsent = sorted(committed - noted)
        open_places = [place for place in range(len(log)) if place not in acked]
        if what == "commit":
            committed.add(len(committed))
        elif what == "store" and unsent:
            log.append(chance.choice(unsent))  # a second time, where it was stored and not noted
        elif what == "note":
            noted.update(chance.sample(sorted(set(log) - noted), k=min(1, len(set(log) - noted))))
        elif what == "hand" and open_places:
            handed.add(chance.choice(open_places))
        elif what == "apply" and handed:
            applied.add(log[chance.choice(sorted(handed))])
        elif what == "ack":
            done = [place for place in sorted(handed - acked) if log[place] in applied]
            acked.update(done[:1])
        elif what == "lose" and open_places:
            acked.add(chance.choice(open_places))

    def lost() -> int:
        """Said to be sent, applied by nobody, and not at the broker."""
        return len(noted - applied - {event for at, event in enumerate(log) if at not in acked})

    def place() -> Place:
        return Place(sent=len(noted), accounted=len(applied))

    known, certain, worst, doubt = Known(), 0, 0, 0
    for _ in range(60):
        for _ in range(chance.randrange(8)):
            step()
        lost_before, before = lost(), place()
        for _ in range(chance.randrange(6)):
            step()
        pending = [at for at in range(len(log)) if at not in acked]
        progress = at_broker(len(pending), len(log), unsure=len(set(pending) & handed))
        for _ in range(chance.randrange(6)):
            step()
        waiting, after = len(committed - noted), place()
        for history, known_waiting in itertools.product((True, False), (waiting, None)):
            bounds = missing(before, progress, after, history=history, waiting=known_waiting)
            assert bounds.certain >= 0, "nothing is too many here"
            assert bounds.least <= lost()
            assert bounds.most >= lost_before
        bounds, again = found(before, progress, after, waiting), repeats(before, progress, after, waiting)
        seen, worst = certain, max(worst, lost())
        certain, doubt = known.look(bounds, lost=0, again=again, at=0.0)
        assert bounds.certain <= certain <= worst
        assert certain >= min(seen, bounds.most) or doubt
    still = place()
    handed.clear()
    acked.update(range(len(log)))
    nothing = at_broker(0, len(log))
    assert known.look(found(still, nothing, still), lost=0, again=None, at=0.0) == (lost(), 0)

"""What is missing for certain, whatever moves while it is read."""

from __future__ import annotations

import itertools
import random

import pytest

from posthouse.broker import Progress
from posthouse.watch.equation import Missing, Place, excused, missing


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
        for history, waiting in itertools.product((True, False), (len(committed - noted), None)):
            bounds = missing(before, progress, place(), history=history, waiting=waiting)
            assert bounds.certain >= 0, "nothing is too many here"
            assert bounds.least <= lost()
            assert bounds.most >= lost_before

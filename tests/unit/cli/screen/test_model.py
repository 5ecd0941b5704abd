"""What the screen says, in words, of figures made by hand."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.cli.screen.history import History
from posthouse.cli.screen.model import Need, Screen, screen_of
from posthouse.store import Counts, Gauges
from tests.unit.cli.screen.seen import attended, history, line, look, worker


def shown(seen: History, now: float = 10.0) -> Screen:
    return screen_of(seen, ["shop"], now)


def test_before_the_first_look_it_says_so_and_claims_nothing() -> None:
    screen = shown(History())
    assert screen.headline == "Looking for the first time …"
    assert (screen.consumers, screen.services) == ((), ())


def test_a_store_that_is_away_from_the_start_is_named() -> None:
    seen = History()
    seen.miss("no server at db:5432", 1.0)
    assert shown(seen).headline == "Cannot tell: no server at db:5432"
    assert shown(seen).need is Need.NOW


def test_it_adds_up() -> None:
    screen = shown(history(look(0.0, line())))
    assert screen.headline == "It adds up: all that was committed is applied, in flight or held."
    assert screen.need is Need.NONE
    [row] = screen.consumers
    assert (row.name, row.word, row.need, row.count) == ("billing", "adds up ✓", Need.NONE, 0)


def test_it_adds_up_and_somebody_is_needed_all_the_same() -> None:
    screen = shown(history(look(0.0, line(applied=97, held={"dead": 1, "gap": 2}))))
    assert screen.headline.endswith("applied, in flight or held, but 1 event dead or set aside")
    assert screen.need is Need.NOW
    [row] = screen.consumers
    assert (row.detail, row.need) == ("1 dead, 2 gap", Need.NOW)
    assert "held events: see `posthouse held list TARGET`" in [one.text for one in screen.sentences]


def test_what_seems_to_be_missing_while_it_moves_is_no_alarm() -> None:
    seen = history(look(0.0, line(applied=90, in_flight=10)), look(1.0, line(committed=200, applied=150, in_flight=30)))
    screen = shown(seen)
    assert screen.headline == "Events move: 30 in flight, none known to be missing."
    assert (screen.need, screen.consumers[0].word) == (Need.NONE, "moves")
    assert screen.sentences == []


def test_what_may_be_counted_twice_while_it_moves_is_no_alarm_and_no_sentence() -> None:
    screen = shown(history(look(0.0, line(applied=95, in_flight=5, overlap=5))))
    assert (screen.need, screen.consumers[0].word, screen.sentences) == (Need.NONE, "moves", [])


def test_what_stands_still_and_is_missing_is_said_first() -> None:
    lost = line(applied=90, in_flight=3)
    screen = shown(history(look(0.0, lost), look(1.0, lost)))
    assert screen.headline == "Does not add up: 7 events missing in billing"
    assert (screen.need, screen.consumers[0].word) == (Need.NOW, "7 missing")
    assert screen.sentences[0].style == "bold red"
    assert "`posthouse status TARGET`" in screen.sentences[0].text


def test_what_seems_to_be_missing_at_one_look_is_no_alarm_though_nothing_is_in_flight() -> None:
    """It was committed while the others were read, and was applied before the next look."""
    seen = history(look(0.0, line()), look(1.0, line(committed=151, applied=150)))
    assert (shown(seen).need, shown(seen).consumers[0].word) == (Need.NONE, "moves")
    seen.add(look(2.0, line(committed=201, applied=200)))
    assert (shown(seen).need, shown(seen).consumers[0].word) == (Need.NONE, "moves")
    seen.add(look(3.0, line(committed=201, applied=200)))
    assert (shown(seen).need, shown(seen).consumers[0].word) == (Need.NOW, "1 missing")


def test_what_is_missing_for_certain_is_said_while_events_move() -> None:
    seen = look(1.0, line(committed=200, applied=150, in_flight=30))
    certain = msgspec.structs.replace(seen, unaccounted={("billing", "shop.orders.order"): 3})
    screen = shown(history(look(0.0, line()), certain))
    assert screen.headline == "Does not add up: 3 events missing in billing"
    assert (screen.need, screen.consumers[0].word) == (Need.NOW, "3 missing")


def test_an_alarm_stays_until_the_line_adds_up_again() -> None:
    """A look that cannot tell takes nothing back."""
    lost = msgspec.structs.replace(
        look(1.0, line(applied=90, in_flight=3)), unaccounted={("billing", "shop.orders.order"): 3}
    )
    seen = history(lost, look(2.0, line(committed=120, applied=115, in_flight=9, overlap=9)))
    assert shown(seen).consumers[0].word == "3 missing"
    seen.add(look(3.0, line(committed=130, applied=130)))
    assert shown(seen).consumers[0].word == "adds up ✓"
    seen.add(look(4.0, line(committed=140, applied=135, in_flight=3)))
    assert shown(seen).consumers[0].word == "moves"


def test_too_many_are_said_too() -> None:
    screen = shown(history(look(0.0, line(applied=104)), look(1.0, line(applied=104))))
    assert screen.headline == "Does not add up: 4 events too many in billing"
    assert screen.consumers[0].word == "4 too many"


def test_of_many_that_do_not_add_up_two_are_named_and_the_others_counted() -> None:
    lost = [line(f"c{n}", applied=99) for n in range(5)]
    screen = shown(history(look(0.0, *lost), look(1.0, *lost)))
    assert screen.headline == ("Does not add up: 1 event missing in c0, 1 event missing in c1 and 3 more")


def test_nobody_can_tell_of_what_nobody_counted() -> None:
    screen = shown(history(look(0.0, line(foreign=True))))
    assert screen.headline == "Nobody can tell whether it adds up for billing."
    assert (screen.need, screen.consumers[0].word) == (Need.SOON, "cannot tell")
    assert "the service that says these events was not named" in screen.sentences[0].text


def test_a_broker_that_is_away_is_said_and_the_stores_figures_stay() -> None:
    screen = shown(history(look(0.0, line(), away="NATS does not answer")))
    assert screen.headline == "Cannot tell what is at the broker: NATS does not answer"
    assert (screen.need, screen.old, len(screen.consumers)) == (Need.NOW, None, 1)


def test_a_store_that_went_away_leaves_old_figures_with_their_age_until_it_comes_back() -> None:
    seen = history(look(0.0, line()))
    seen.miss("the store is away", 5.0)
    screen = shown(seen, now=65.1)
    assert screen.headline == "Cannot tell for 60 s: the store is away"
    assert screen.old == pytest.approx(65.0)
    assert len(screen.consumers) == 1
    seen.add(look(70.0, line()))
    assert (shown(seen, now=70.1).old, shown(seen, now=70.1).need) == (None, Need.NONE)


def test_who_needs_somebody_comes_first_then_names() -> None:
    rows = [
        line("zebra"),
        line("archive"),
        line("mail", applied=99, held={"quarantined": 1}),
        line("tax", foreign=True),
    ]
    screen = shown(history(look(0.0, *rows)))
    assert [row.name for row in screen.consumers] == ["mail", "tax", "archive", "zebra"]


def test_what_nobody_runs_is_in_the_headline_the_row_and_a_sentence() -> None:
    nobody = attended(worker(age=7200.0), relay=2, consumers=3)
    screen = shown(history(look(0.0, line(applied=97, in_flight=3), unsent=2, attended=[nobody])))
    assert screen.headline.endswith("but nobody runs orders")
    assert [row.word for row in (*screen.consumers, *screen.services)] == ["nobody", "nobody"]
    assert screen.sentences[0].text.startswith("nobody runs orders: desk-7 gave its last sign of life 2 h ago")
    assert [(one.name, one.need) for one in screen.processes] == [("desk-7", Need.SOON)]


def test_who_runs_is_listed_and_of_the_silent_the_last() -> None:
    there = attended(worker("a", age=9000.0), worker("b", age=8000.0), worker("c"), worker("d"))
    screen = shown(history(look(0.0, line(), attended=[there])))
    assert [one.name for one in screen.processes] == ["b", "c", "d"]
    assert [one.since for one in screen.processes] == [3600.0] * 3


def test_events_that_the_broker_refuses_are_counted_at_their_service() -> None:
    screen = shown(history(look(0.0, line(), stuck=3)))
    assert (screen.services[0].detail, screen.services[0].need) == ("3 stuck", Need.SOON)


def test_ages_are_said_where_somebody_waits() -> None:
    seen = look(0.0, line(applied=90, in_flight=9, held={"dead": 1}), unsent=2)
    counts = Counts(committed={}, unsent={}, stuck=0, refused={}, applied={}, skipped={}, held={}, strange={}, timers=0)
    ages = Gauges(at=0.0, counts=counts, unsent_oldest={"t": 7.0}, held_oldest={("billing", "dead"): 7200.0})
    figures = msgspec.structs.replace(seen.figures, oldest={"billing": {"shop.orders.order": 12.0}})
    screen = shown(history(msgspec.structs.replace(seen, figures=figures, gauges={"orders": ages})))
    assert (screen.consumers[0].age, screen.consumers[0].detail) == (12.0, "1 dead (2 h)")
    assert screen.services[0].age == 7.0


def test_where_nothing_waits_there_is_no_age() -> None:
    screen = shown(history(look(0.0, line())))
    assert (screen.consumers[0].age, screen.services[0].age) == (None, None)

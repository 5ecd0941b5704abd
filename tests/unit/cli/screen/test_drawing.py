"""The screen fits every terminal, and says what it left out."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from posthouse.cli.screen.drawing import Place, drawn
from posthouse.cli.screen.history import History
from posthouse.cli.screen.model import screen_of
from tests.unit.cli.screen.seen import attended, history, line, look, worker

FOOT = "shop · 12:00:00Z · every 1 s · Ctrl-C ends it"
LONG = "shop.orders.a-consumer-with-quite-a-long-name-that-somebody-thought-of"


def text(seen: History, columns: int = 80, lines: int = 24, *, now: float = 10.0, fancy: bool = True) -> list[str]:
    screen = screen_of(seen, ["shop"], now)
    return [one.plain for one in drawn(screen, FOOT, Place(columns, lines, now, fancy))]


def busy(consumers: int = 3) -> History:
    """A few looks at many consumers, one of them with a dead event."""
    return history(
        *(
            look(
                float(n),
                *(line(f"c{m:02}", committed=100 * n, applied=100 * n) for m in range(consumers - 1)),
                line(LONG, committed=100 * n, applied=100 * n - 1, held={"dead": 1}),
                committed=100 * n,
                attended=[attended(worker())],
            )
            for n in range(1, 9)
        )
    )


def test_eighty_by_twenty_four_has_all_of_it() -> None:
    said = text(busy())
    whole = "\n".join(said)
    assert said[0].startswith("It adds up: all that was committed is applied, in flight or held, but 1 event")
    for words in ("CONSUMER", "APPLIED/S", "LAST MINUTE", "IN FLIGHT", "HELD", "COMMITS/S", "UNSENT", "WHO RUNS"):
        assert words in whole
    assert "100" in whole
    assert "█" in whole
    assert "1 dead" in whole
    assert "desk-7  relay, consumers, for 1 h: orders" in whole
    assert "`posthouse held list" in whole


@pytest.mark.parametrize("old", [False, True])
def test_no_line_is_longer_than_the_terminal_and_there_are_no_more_than_it_has(old: bool) -> None:
    sizes = random.Random(7).sample([(columns, lines) for columns in range(1, 200) for lines in range(1, 60)], 80)
    seen = busy(30)
    if old:
        seen.miss("the store is away: " + "x" * 300, 9.0)
    for columns, lines in [*sizes, (1, 1), (80, 24), (120, 40)]:
        said = text(seen, columns, lines)
        assert len(said) <= lines
        assert max(map(cell_len, said)) <= columns, (columns, lines)


def test_of_more_consumers_than_lines_the_troubled_are_shown_and_the_others_counted() -> None:
    said = text(busy(40))
    assert len(said) <= 24
    rows = [one for one in said if one.startswith(("c0", "c1", "c2", "c3", "shop."))]
    assert rows[0].startswith("shop.ord")
    [left] = [one for one in said if one.startswith("… and") and "add up" in one]
    assert left == f"… and {40 - len(rows)} more that add up"


def test_troubled_ones_that_are_left_out_are_counted_as_such() -> None:
    lost = [line(f"c{n:02}", applied=99) for n in range(40)]
    said = text(history(look(0.0, *lost), look(1.0, *lost)))
    [left] = [one for one in said if "in trouble" in one]
    assert left.split()[2] == left.split()[4], "none of them adds up"


def test_a_long_name_is_cut_in_its_middle_and_the_verdict_stays() -> None:
    [row] = [one for one in text(busy()) if one.startswith("shop.ord")]
    assert "…" in row
    assert "adds up ✓" in row
    assert LONG in "\n".join(text(busy(), columns=200))


def test_a_narrow_terminal_has_figures_and_no_bars() -> None:
    said = "\n".join(text(busy(), columns=50))
    assert "█" not in said
    assert "100" in said
    assert "adds up" in said


def test_a_terminal_that_knows_only_ascii_gets_bars_that_it_can_show() -> None:
    said = "\n".join(text(busy(), fancy=False))
    assert "█" not in said
    assert "@" in said


def test_figures_of_before_are_marked_as_old() -> None:
    seen = busy()
    seen.miss("the store is away", 9.0)
    said = text(seen, now=68.1)
    assert said[0] == "Cannot tell for 59 s: the store is away"
    assert said[1].startswith("THESE FIGURES ARE 60 s OLD")
    place = Place(80, 24, 68.1)
    lines = drawn(screen_of(seen, ["shop"], 68.1), FOOT, place)
    assert all(one.style == "dim" for one in lines[2:] if one.plain)


def test_names_and_errors_have_no_power_over_the_terminal() -> None:
    seen = history(look(0.0, line("evil\x1b[2J\x07"), away="\x1b]0;title\x07"))
    assert "\x1b" not in "".join(text(seen))
    seen.miss("a server that says \x1b[31m", 1.0)
    assert "\x1b" not in "".join(text(seen))


def test_before_the_first_rate_there_are_dots_and_no_zero() -> None:
    [row] = [one for one in text(history(look(0.0, line()))) if one.startswith("billing")]
    assert row.split()[:2] == ["billing", "…"]

"""What people see of the demonstration: frames while it lives, and tables afterwards."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from melmastoon.demo.figures import Figures, Money
from melmastoon.demo.glance import Glance
from melmastoon.demo.report import print_figures
from melmastoon.demo.view import View
from posthouse.cli import app


def glance(facts: int, **bookings: int) -> Glance:
    return Glance(day=date(2027, 3, 16), days=1, hour=15.5, doing="check in", bookings=bookings, facts=facts, kills=2)


def drawn(view: View, seen: Glance, now: float) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(view.frame(seen, now))
    return capture.get()


def test_a_frame_shows_the_day_the_bookings_the_kills_and_the_rate() -> None:
    view = View(bookings=40)
    drawn(view, glance(100), 0.0)
    frame = drawn(view, glance(300, checked_in=10, cancelled=20), 2.0)
    assert "Tue 16 Mar 2027 15:30" in frame
    assert "300 facts, 100/s" in frame
    assert "2 processes killed" in frame
    bars = {line.split("  ")[0].strip(): line.count("█") for line in frame.splitlines()}
    assert bars["checked in"] == 10
    assert bars["cancelled"] == 20
    assert bars["held"] == 0


FINE = Figures(
    bookings={"checked_out": 2},
    sagas={"completed": 2},
    sagas_by_kind={"booking": {"completed": 2}},
    compensations={"booking: no_room": 1},
    partials={"check_in": 1},
    alerts=3,
    begun_again=1,
    stays_extended=2,
    events={"melmastoon.iam.user.created.v1": 4, "melmastoon.iam.mfa.enrolled.v1": 0},
    money={"serena": Money(captured=100, refunded=20, cash=10, charged=110, credited=20, open=0)},
    money_balanced=True,
    nights_oversold=0,
    keys_lingering=0,
    sagas_unfinished=0,
    lost=0,
    duplicated=0,
    out_of_order=0,
    held=0,
    erased=1,
    noise=9,
    readable=0,
    forged=8,
    findings=[],
    facts=10,
    applied=20,
    kills=1,
    simulated_days=9.0,
    seconds=4.0,
)


def test_the_tables_say_that_it_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(FINE)
    said = capsys.readouterr().out
    assert "1 of 2 were said" in said
    assert "booking: no_room" in said
    assert "3 alerts to people on call, 1 saga begun again" in said
    assert "9 days in 4 s: it adds up" in said
    assert "✗" not in said


@pytest.mark.parametrize(
    "wrong",
    ["nights_oversold", "keys_lingering", "sagas_unfinished", "lost", "duplicated", "out_of_order", "held"],
)
def test_whatever_is_wrong_is_marked_and_named(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures(**{**_fields(FINE), wrong: 3, "findings": ["room 7 was sold twice"]})  # type: ignore[arg-type]
    assert not figures.adds_up
    print_figures(figures)
    said = capsys.readouterr().out
    assert said.count("✗") == 1
    assert "room 7 was sold twice" in said
    assert "it does NOT add up" in said


def test_money_that_does_not_balance_is_wrong() -> None:
    assert not Figures(**{**_fields(FINE), "money_balanced": False}).adds_up  # type: ignore[arg-type]
    assert FINE.adds_up


def _fields(figures: Figures) -> dict[str, object]:
    return {name: getattr(figures, name) for name in figures.__struct_fields__}


def test_servers_are_named_together_and_a_folder_is_new(tmp_path: Path) -> None:
    runner = CliRunner()
    alone = runner.invoke(app, ["demo", "--store", "postgresql://h/{service}"])
    assert alone.exit_code == 2
    assert "belong together" in alone.output
    (tmp_path / "something").write_text("")
    used = runner.invoke(app, ["demo", "--keep", str(tmp_path)])
    assert used.exit_code == 2
    assert "not empty" in used.output

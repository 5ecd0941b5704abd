"""`posthouse status`: committed = applied + in flight + held."""

from __future__ import annotations

import json
import sqlite3

from tests.unit.cli.conftest import Project


def test_a_line_adds_up_with_held_events_in_it(poisoned: Project) -> None:
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 0
    assert "adds up ✓" in result.stdout
    assert "1 blocked, 1 dead" in result.stdout


def test_the_figures_are_one_json_value(poisoned: Project) -> None:
    report = poisoned.json("status", "shop:orders")
    assert isinstance(report, dict)
    assert report["adds_up"] is True
    (line,) = report["lines"]
    assert {name: line[name] for name in ("committed", "applied", "in_flight", "held", "skipped", "difference")} == {
        "committed": 4,
        "applied": 2,
        "in_flight": 0,
        "held": {"blocked": 1, "dead": 1},
        "skipped": 0,
        "difference": 0,
    }


def test_unsent_events_are_in_flight(project: Project) -> None:
    project.place(("a", 1), ("b", 2))
    report = project.json("status", "shop:orders")
    assert isinstance(report, dict)
    assert report["lines"][0]["in_flight"] == 2
    assert (report["moving"], report["unsent"]) == (True, {"orders": 2})


def test_a_service_that_never_ran_adds_up_at_zero(project: Project) -> None:
    assert project.run("status", "shop").exit_code == 0


def test_a_missing_event_ends_with_code_1(poisoned: Project) -> None:
    with sqlite3.connect(poisoned.folder / "orders.db") as connection:
        connection.execute("DELETE FROM posthouse_held WHERE state = 'dead'")
    connection.close()
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 1
    assert "1 missing" in result.stdout


def test_a_missing_event_beside_one_that_waits_ends_with_code_1_too(poisoned: Project) -> None:
    """Nothing of what is on its way moves, so it explains nothing."""
    poisoned.place(("c", 9))
    with sqlite3.connect(poisoned.folder / "orders.db") as connection:
        connection.execute("DELETE FROM posthouse_held WHERE state = 'dead'")
    connection.close()
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 1
    assert "1 missing" in result.stdout
    assert "moving" not in result.stdout
    report = poisoned.run("status", "shop:orders", "--json")
    assert report.exit_code == 1
    said = json.loads(report.stdout)
    assert (said["verdict"], said["moving"], said["unsent"]) == ("does not add up", False, {"orders": 1})


def test_what_nobody_can_tell_ends_with_code_3_and_a_reason(poisoned: Project) -> None:
    """The log hid older frames from the group, and an event is nowhere to be found."""
    for file, change in (
        ("orders.db", "DELETE FROM posthouse_held WHERE state = 'dead'"),
        ("posthouse-log.db", "UPDATE cursors SET started = 1"),
    ):
        with sqlite3.connect(poisoned.folder / file) as connection:
            connection.execute(change)
        connection.close()
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 3
    assert "cannot tell, 1 of them not found: the group may have begun after them" in result.stdout
    report = poisoned.run("status", "shop:orders", "--json")
    assert report.exit_code == 3
    assert '"adds_up": false' in report.stdout or '"adds_up":false' in report.stdout


def lose(project: Project, state: str = "dead") -> None:
    with sqlite3.connect(project.folder / "orders.db") as connection:
        assert connection.execute("DELETE FROM posthouse_held WHERE state = ?", (state,)).rowcount == 1
    connection.close()


def test_junk_of_a_stranger_takes_nothing_from_what_adds_up(poisoned: Project) -> None:
    poisoned.put(b"junk", b"more")
    poisoned.settle_strange(2)
    report = poisoned.json("status", "shop:orders")
    assert isinstance(report, dict)
    assert (report["verdict"], report["lines"][0]["strange"]) == ("adds up", 2)
    assert report["lines"][0]["held"] == {"blocked": 1, "dead": 1}


def test_junk_of_a_stranger_makes_up_for_nothing_that_is_lost(poisoned: Project) -> None:
    poisoned.put(b"junk")
    poisoned.settle_strange(1)
    lose(poisoned)
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 3, "it may have been the event"
    assert "1 of them not found: they may be among the 1 held in which no event could be read" in result.stdout
    lose(poisoned, "blocked")
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 1, "it cannot have been both"
    assert "2 missing" in result.stdout


def test_a_dead_letter_that_was_refused_for_good_hides_nothing(poisoned: Project) -> None:
    """With its story it is larger than the frame was, and larger than the log takes: it stays in the outbox for ever."""
    poisoned.put(b"x" * (8 * 1024 * 1024 - 10))
    poisoned.settle_strange(1)
    report = poisoned.json("status", "shop:orders")
    assert isinstance(report, dict)
    assert (report["moving"], report["unsent"], report["stuck"]) == (False, {"orders": 0}, {"orders": 1})
    lose(poisoned)
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 3
    assert "(moving)" not in result.stdout


def test_a_narrow_terminal_gets_every_figure(poisoned: Project) -> None:
    text = poisoned.run("status", "shop:orders", columns=40).stdout
    assert "COMMITTED" in text
    assert "adds up ✓" in text


def test_watch_and_json_exclude_each_other(project: Project) -> None:
    assert project.run("status", "shop", "--watch", "--json").exit_code == 2


def test_it_says_how_a_commit_is_noticed(project: Project) -> None:
    report = project.json("status", "shop")
    assert isinstance(report, dict)
    assert report["wake"] == {"orders": "socket + polling every 0.05 s"}
    assert "socket" in project.run("status", "shop").stdout


def test_a_broker_that_is_away_is_no_loss_but_nobody_can_tell(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    project.write("shop.py", text + '\nfrom posthouse import App\n\nApp(orders, broker="nats://127.0.0.1:1")\n')
    result = project.run("status", "shop:orders")
    assert result.exit_code == 3
    assert "cannot tell" in result.stderr


def test_verbose_shows_how_long_each_crossing_of_a_process_took(poisoned: Project) -> None:
    result = poisoned.run("status", "--verbose", "shop:orders")
    assert result.exit_code == 0
    assert "orders: timed by one process" in result.stdout
    for crossing in ("inward", "handler", "publish", "receive", "transaction"):
        assert crossing in result.stdout
    report = poisoned.json("status", "--verbose", "shop:orders")
    assert isinstance(report, dict)
    (timed,) = report["timing"]
    handled = {figure["outcome"]: figure["count"] for figure in timed["figures"] if figure["crossing"] == "handler"}
    assert handled == {"ok": 2, "ValueError": 1}
    plain = poisoned.json("status", "shop:orders")
    assert isinstance(plain, dict)
    assert plain["timing"] == []


def test_verbose_says_when_no_process_has_run_yet(project: Project) -> None:
    assert "no process has written what it timed yet" in project.run("status", "--verbose", "shop").stdout

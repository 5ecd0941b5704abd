"""`posthouse status`: committed = applied + in flight + held."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import version
from typing import Any

import pytest

from posthouse.app import app_of
from posthouse.cli.workers import unattended
from posthouse.opened import process_name
from posthouse.runtime import Part
from posthouse.service import Service
from posthouse.watch.liveness import Attendance, is_running
from tests.kit.waiting import eventually
from tests.unit.cli.conftest import Project


def report(project: Project, *options: str) -> dict[str, Any]:
    """What it says as JSON, whatever it ends with; the code is in it too."""
    result = project.run("status", "shop:orders", "--json", *options)
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == found["code"]
    return found


def test_a_line_adds_up_with_held_events_in_it(poisoned: Project) -> None:
    result = poisoned.run("status", "shop:orders")
    assert result.exit_code == 1, "a dead event waits for a person"
    assert "adds up ✓" in result.stdout
    assert "1 blocked, 1 dead" in result.stdout


def test_the_figures_are_one_json_value(poisoned: Project) -> None:
    said = report(poisoned)
    assert said["adds_up"] is True
    (line,) = said["lines"]
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
    said = report(project)
    assert said["lines"][0]["in_flight"] == 2
    assert (said["moving"], said["unsent"]) == (True, {"orders": 2})


def test_a_store_that_is_new_adds_up_at_zero_and_one_that_is_not_there_does_not(project: Project) -> None:
    assert project.run("status", "shop").exit_code == 2
    project.run("db", "upgrade", "shop")
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
    again = poisoned.run("status", "shop:orders", "--json")
    assert again.exit_code == 1
    said = json.loads(again.stdout)
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
    again = poisoned.run("status", "shop:orders", "--json")
    assert again.exit_code == 3
    assert '"adds_up": false' in again.stdout or '"adds_up":false' in again.stdout


def lose(project: Project, state: str = "dead") -> None:
    with sqlite3.connect(project.folder / "orders.db") as connection:
        assert connection.execute("DELETE FROM posthouse_held WHERE state = ?", (state,)).rowcount == 1
    connection.close()


def test_junk_of_a_stranger_takes_nothing_from_what_adds_up(poisoned: Project) -> None:
    poisoned.put(b"junk", b"more")
    poisoned.settle_strange(2)
    said = report(poisoned)
    assert (said["verdict"], said["lines"][0]["strange"]) == ("adds up", 2)
    assert said["lines"][0]["held"] == {"blocked": 1, "dead": 1}


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
    said = report(poisoned)
    assert (said["moving"], said["unsent"], said["stuck"]) == (False, {"orders": 0}, {"orders": 1})
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
    project.run("db", "upgrade", "shop")
    said = report(project)
    assert said["wake"] == {"orders": "socket + polling every 0.05 s"}
    assert "socket" in project.run("status", "shop").stdout


def test_a_broker_that_is_away_is_no_loss_but_nobody_can_tell(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    text = (project.folder / "shop.py").read_text()
    project.write("shop.py", text + '\nfrom posthouse import App\n\nApp(orders, broker="nats://127.0.0.1:1")\n')
    result = project.run("status", "shop:orders")
    assert result.exit_code == 3
    assert "cannot tell" in result.stderr


def test_with_the_broker_away_it_shows_in_seconds_what_the_store_knows(poisoned: Project) -> None:
    poisoned.place(("c", 9))
    text = (poisoned.folder / "shop.py").read_text()
    poisoned.write("shop.py", text + '\nfrom posthouse import App\n\nApp(orders, broker="nats://127.0.0.1:1")\n')
    began = time.monotonic()
    result = poisoned.run("status", "shop:orders", "--json")
    assert time.monotonic() - began < 8
    said = json.loads(result.stdout)
    assert (said["code"], said["verdict"], said["adds_up"], said["unsent"]) == (1, "cannot tell", False, {"orders": 1})
    assert said["lines"][0]["held"] == {"blocked": 1, "dead": 1}
    assert "127.0.0.1:1" in said["away"]
    assert "nothing listens at" in result.stderr


def test_verbose_shows_how_long_each_crossing_of_a_process_took(poisoned: Project) -> None:
    result = poisoned.run("status", "--verbose", "shop:orders")
    assert "orders: timed by one process" in result.stdout
    for crossing in ("inward", "handler", "publish", "receive", "transaction"):
        assert crossing in result.stdout
    said = report(poisoned, "--verbose")
    (timed,) = said["timing"]
    handled = {figure["outcome"]: figure["count"] for figure in timed["figures"] if figure["crossing"] == "handler"}
    assert handled == {"ok": 2, "ValueError": 1}
    plain = report(poisoned)
    assert plain["timing"] == []


def test_verbose_says_when_no_process_has_run_yet(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    assert "no process has written what it timed yet" in project.run("status", "--verbose", "shop").stdout


def test_a_service_that_runs_well_and_has_nothing_left_ends_with_code_0(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    said = report(project)
    assert (said["code"], said["verdict"], said["dead"]) == (0, "adds up", 0)


def test_dead_and_quarantined_events_end_with_code_1_until_somebody_decides(poisoned: Project) -> None:
    assert report(poisoned)["code"] == 1
    poisoned.run("held", "quarantine", "shop:orders", "1")
    poisoned.settle(applied=3, held=1)
    assert (report(poisoned)["code"], report(poisoned)["dead"]) == (1, 1)
    poisoned.run("held", "skip", "shop:orders", "1")
    assert report(poisoned)["code"] == 0


def test_work_that_waits_while_nobody_runs_ends_with_code_4(project: Project) -> None:
    project.place(("a", 1), ("b", 2))
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4
    assert (
        "nobody runs orders: no process has in the last day; `posthouse run shop:orders` starts it; waiting: 2 events in the outbox, "
        "2 events to be applied" in result.stdout
    )
    project.settle(applied=2, held=0)
    result = project.run("status", "shop:orders")
    assert result.exit_code == 0, "nobody runs it, and nothing waits"
    assert "stopped in good order" in result.stdout


def test_timers_that_nobody_will_fire_are_work_too(project: Project) -> None:
    project.place(("a", 1), after=3600.0)
    assert report(project)["unattended"][0].endswith("waiting: 1 timer to be fired")
    assert report(project)["code"] == 4


def test_it_says_who_runs_since_when_which_version_and_what(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_COMMIT", "a1b2c3d")
    project.place(("a", 1))

    async def look(service: Service) -> None:
        async with service.running():
            await eventually(lambda: alive(service))
            command = [sys.executable, "-m", "posthouse", "status", "shop:orders"]
            other = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            said = (await other.communicate())[0].decode()
            for part in (process_name(), "relay, consumers, timers", version("posthouse"), "a1b2c3d", "s ago", "runs"):
                assert part in said
            assert "nobody" not in said

    project.with_service(look)
    (worker,) = report(project)["workers"]
    assert (worker["stopped"], worker["running"], worker["pid"]) == (True, False, os.getpid())


def test_a_part_that_nobody_runs_is_named_and_so_are_mixed_versions(project: Project) -> None:
    project.place(("a", 1))
    pretend(project, parts="consumers", version="1.0")
    pretend(project, parts="consumers, timers", version="1.1")
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4
    assert "orders: no process runs its relay" in result.stdout
    assert "waiting: 1 event in the outbox" in result.stdout
    assert "orders runs in 2 versions: posthouse 1.0 in one process, posthouse 1.1 in one process" in result.stdout


def test_who_fell_silent_does_not_run(project: Project) -> None:
    project.place(("a", 1))
    pretend(project, parts="relay, consumers, timers", age=7200.0)
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4
    assert "silent" in result.stdout
    assert "nobody runs orders: desk-7 gave its last sign of life 2 h ago" in result.stdout


def test_of_many_that_fell_silent_the_last_is_shown_and_the_others_are_counted(project: Project) -> None:
    project.place(("a", 1))
    for hours in (3, 2, 4):
        pretend(project, parts="relay, consumers, timers", version=f"1.{hours}", age=hours * 3600.0)
    said = project.run("status", "shop:orders", columns=160).stdout
    assert said.count(" silent\n") == 1
    assert "2 h ago" in said
    assert "and 2 more that fell silent before in the last day: --verbose shows them" in said
    assert project.run("status", "shop:orders", "--verbose", columns=160).stdout.count(" silent\n") == 3
    assert len(report(project)["workers"]) == 3


def test_who_was_killed_while_its_clock_was_ahead_does_not_run_until_time_catches_up(project: Project) -> None:
    project.place(("a", 1))
    pretend(project, parts="relay, consumers, timers", age=-7200.0)
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4
    assert "nobody runs orders: desk-7 gave its last sign of life by a clock that was 2 h ahead" in result.stdout


def test_a_consumer_that_the_running_processes_do_not_have_is_named_with_what_waits_for_it(project: Project) -> None:
    """Another was added, and what runs is of the release before."""
    text = (project.folder / "shop.py").read_text()
    more = """
billing = Service("billing", namespace="shop")


@billing.on(OrderPlaced)
async def book(event: Event[OrderPlaced], tx: Tx) -> None: ...


from posthouse import App

App(orders, billing, store="sqlite:///orders.db")
"""
    project.place(("a", 1), ("b", 2))
    project.settle(applied=2, held=0)
    pretend(project, parts="relay, consumers, timers")
    assert project.run("status", "shop:orders").exit_code == 0
    project.write("shop.py", text + more)
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4, result.output
    assert (
        "orders, billing: nobody runs the consumer billing: the processes that run do not have it, start them with what is "
        "declared now; waiting: 2 events to be applied" in result.stdout
    )
    pretend(project, parts="relay", version="1.1", consumers="billing, orders")
    assert report(project)["code"] == 4, "it could, and does not"
    pretend(project, parts="consumers", version="1.2", consumers="billing")
    assert report(project)["unattended"] == []


def test_it_names_who_runs_a_saga_and_who_stands_aside_and_when_nobody_does(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    more = """
from posthouse import App, Saga, Turn, starts, step

@orders.saga("order", correlate="order_id")
class Order(Saga):
    order_id: str

    @starts(OrderPlaced)
    def begin(self, event: Event[OrderPlaced], turn: Turn) -> None: ...

App(orders, store="sqlite:///orders.db")
"""
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    project.write("shop.py", text + more)
    both = "orders, orders.order"
    pretend(project, parts="relay, consumers, timers", consumers=both, aside="orders.order unfit")
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4, result.output
    assert (
        "orders: nobody runs the saga orders.order: desk-7 cannot go on with what is stored, and leaves it alone; `posthouse saga check "
        "shop:orders` says what does not fit, start the release before, or one that can go on; waiting: 1 event to be applied"
        in result.stdout
    )
    pretend(project, parts="relay, consumers, timers", version="1.1", name="desk-8", consumers=both)
    result = project.run("status", "shop:orders")
    assert result.exit_code != 4
    assert (
        "the saga orders.order is run by desk-8 (release r1); desk-7 cannot go on with what is stored, and leaves it alone"
        in result.stdout
    )
    runners = {"run_by": {"desk-8": "r1"}, "aside": {"desk-7": "unfit"}}
    assert report(project)["runners"] == {"orders.order": runners}


def test_a_schedule_that_the_running_processes_do_not_have_is_named(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    more = """
from posthouse import App, Run

@orders.every("0 6 * * *")
async def audit(run: Run, tx: Tx) -> None: ...

App(orders, store="sqlite:///orders.db")
"""
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    project.write("shop.py", text + more)
    assert "audit" not in project.run("status", "shop:orders").stdout, "nobody runs: that is said"
    pretend(project, parts="relay, consumers, timers", consumers="orders, orders.schedules")
    result = project.run("status", "shop:orders")
    assert result.exit_code == 4, result.output
    assert (
        "orders: nobody begins the schedule audit: the processes that run the timers do not have it, start them with what is "
        "declared now" in result.stdout
    )


def pretend(
    project: Project,
    *,
    parts: str,
    version: str = "1.0",
    age: float = 0.0,
    name: str = "desk-7",
    consumers: str = "orders",
    aside: str = "",
) -> None:
    """A process of another machine."""
    with sqlite3.connect(project.folder / "orders.db") as connection:
        seen = time.time() - age
        row = (
            f"{parts}-{version}",
            "orders",
            name,
            "desk",
            7,
            version,
            "",
            parts,
            consumers,
            "orders.order r1" if "orders.order" in consumers else "",
            aside,
            seen - 60,
            seen,
            0,
            b"[]",
        )
        connection.execute(f"INSERT INTO posthouse_worker VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


async def alive(service: Service) -> bool:
    return any(is_running(worker) for worker in await app_of(service).store.workers.read())


def test_a_log_that_is_gone_is_named_with_what_to_do_by_status_and_doctor(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    assert project.run("doctor", "shop").exit_code == 0
    for file in project.folder.glob("posthouse-log.db*"):
        file.unlink()
    project.place(("b", 1))
    text = " ".join(project.run("status", "shop:orders").stdout.split())
    assert "shop.orders.order: 1 events were sent, and the broker has no trace of them" in text
    assert "docs/missing.md" in text
    result = project.run("doctor", "shop", columns=300)
    assert result.exit_code == 1
    assert "log of shop.orders.order" in result.stdout
    assert "docs/missing.md" in result.stdout


def test_an_event_that_waits_for_several_consumers_is_said_to_count_for_each() -> None:
    waiting: dict[Part, int] = {"consumers": 966, "timers": 1}
    one = Attendance(
        services="shop", workers=[], missing=["consumers"], idle=["shop", "shop.audit", "b"], waiting=waiting
    )
    (said,) = unattended(one)
    assert said.endswith("waiting: 966 events to be applied (counted for each of 3 consumers), 1 timer to be fired")

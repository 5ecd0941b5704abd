"""What every command has in common, and the small commands."""

from __future__ import annotations

import re
import time
from importlib.metadata import version

import pytest

from posthouse.stores.sqlite.schema import migrations
from tests.unit.cli.conftest import Project


def test_the_version_is_printed(project: Project) -> None:
    assert project.run("--version").stdout == f"posthouse {version('posthouse')}\n"


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["stats", "shop"], "Did you mean 'status'?"),
        (["held", "lst", "shop"], "Did you mean 'list'?"),
        (["status", "shop", "--jsn"], "--json"),
        (["run", "shop", "--only", "rely"], "'relay'"),
    ],
)
def test_a_misspelled_word_gets_a_suggestion(project: Project, arguments: list[str], suggestion: str) -> None:
    result = project.run(*arguments)
    assert result.exit_code == 2
    assert suggestion in result.stderr


def test_a_bad_store_url_is_a_sentence_and_code_2(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_STORE", "sqlit:///orders.db")
    result = project.run("status", "shop")
    assert result.exit_code == 2
    assert "Did you mean 'sqlite'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_stall_limit_of_nothing_is_refused(project: Project) -> None:
    assert project.run("run", "shop", "--stall-exit", "0").exit_code == 2


def test_pending_timers_are_listed_and_can_be_cancelled(project: Project) -> None:
    project.place(("later", 5), after=3600, timer="reminder")
    listed = project.json("timers", "shop")
    assert isinstance(listed, list)
    assert [(t["name"], t["tenant"], t["type"]) for t in listed] == [("reminder", "t1", "shop.orders.order.placed.v1")]
    assert "reminder" in project.run("timers", "shop").stdout
    assert project.run("timers", "shop", "--cancel", "reminder").exit_code == 2
    assert project.run("timers", "shop", "--cancel", "reminder", "--tenant", "t1").exit_code == 0
    assert project.json("timers", "shop") == []
    assert project.run("timers", "shop", "--cancel", "reminder", "--tenant", "t1").exit_code == 2


def test_a_timer_shows_when_it_is_due(project: Project) -> None:
    before = time.time()
    project.place(("later", 5), after=7200, timer="reminder")
    text = project.run("timers", "shop").stdout
    assert re.search(r"reminder +t1 +20\d\d-", text)
    assert "2 h" in text
    assert time.time() - before < 60


def test_topics_show_events_keys_and_readers(project: Project) -> None:
    found = project.json("topics", "shop")
    assert isinstance(found, dict)
    assert found["orders"]["groups"] == {"orders": ["shop.orders.order"]}
    assert "order_id" in project.run("topics", "shop").stdout


def test_a_store_is_upgraded_once(project: Project) -> None:
    for target in ("shop:orders", "sqlite:///elsewhere.db"):
        pending = project.run("db", "status", target)
        assert pending.exit_code == 1
        assert "db upgrade" in pending.stdout
        assert project.json("db", "upgrade", target) != {"applied": [], "left": []}
        assert project.json("db", "upgrade", target) == {"applied": [], "left": []}
        every = dict.fromkeys(migrations(), "applied")
        assert project.json("db", "status", target) == {"pending": [], "migrations": every}
        assert {"0001_begin", "0003_sagas"} <= every.keys()


def test_a_store_that_was_brought_back_is_asked_about_tried_dry_and_gets_a_new_lineage(project: Project) -> None:
    project.place(("o1", 5))
    assert project.json("db", "restored", "shop:orders", "--dry-run") == {"lineage": 2, "again": 1, "dry_run": True}
    assert project.run("db", "restored", "shop:orders").exit_code == 2, "nobody answered the question"
    told = project.run("db", "restored", "shop:orders", "--yes").stdout
    assert "new facts get the lineage 2; 1 fact will be sent (again)" in told
    assert "posthouse seek" in told
    assert project.json("db", "restored", "shop:orders", "--dry-run") == {"lineage": 3, "again": 1, "dry_run": True}


def test_nothing_is_stuck_in_a_new_outbox(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    assert project.run("outbox", "list", "shop").stdout == "nothing is stuck\n"
    assert project.json("outbox", "list", "shop") == []
    assert project.run("outbox", "retry", "shop", "7").exit_code == 2


def test_an_event_that_the_broker_refused_is_listed_and_tried_again(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    project.write(
        "shop.py",
        text.replace("orders = ", PICKY + "\norders = ", 1)
        + "\nfrom posthouse import App\n\nApp(orders, broker=Picky())\n",
    )
    project.place(("a", 1), ("a", 2))
    project.settle_stuck(2)
    rows = project.json("outbox", "list", "shop")
    assert isinstance(rows, list)
    assert [(row["state"], row["error"]) for row in rows] == [
        ("quarantined", "no thanks"),
        ("waiting", "behind a refused event of its key"),
    ]
    assert "no thanks" in project.run("outbox", "list", "shop").stdout
    assert project.json("outbox", "retry", "shop", "--all") == {"done": [1], "unknown": []}
    project.write("shop.py", text)
    project.settle(applied=2, held=0)


PICKY = """
from posthouse.broker import Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock


class Picky(MemoryBroker):
    def __init__(self):
        super().__init__(clock=SystemClock())

    async def publish(self, frames):
        return [Verdict(False, "no thanks", True) for _ in frames]

"""

"""`posthouse replay`: counts first, asks, and leaves a job that can be looked at, resumed and cancelled."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.cli.conftest import SHOP, Project

WHO = ("--by", "ada", "--why", "ticket 7")


@pytest.fixture
def billed(project: Project) -> Project:
    """Two orders that were billed wrong, and a release that bills them right."""
    project.place(("a", 100), ("b", 200))
    project.settle(2, 0)
    project.write("shop.py", SHOP.replace("event.data.total_cents))", "event.data.total_cents + 1))"))
    return project


def listed(project: Project, *words: str) -> list[dict[str, Any]]:
    found = project.json(*words)
    assert isinstance(found, list)
    return found


def test_a_dry_run_counts_and_changes_nothing(billed: Project) -> None:
    result = billed.run("replay", "shop:orders", "--reprocess", "--dry-run")
    assert result.exit_code == 0, result.output
    assert re.search(r"shop\.orders\.order\.placed\.v1 +t1 +2 +0 +2", result.output)
    found = billed.json("replay", "shop:orders", "--dry-run")
    assert isinstance(found, dict)
    assert (found["events"], found["job"], found["plan"]["left_out"]) == (0, None, {"applied": 2})
    assert billed.json("jobs", "list", "shop:orders") == []
    assert len(billed.invoices()) == 2


def test_it_asks_first_and_says_who_did_it(billed: Project) -> None:
    assert billed.run("replay", "shop:orders", "--reprocess", *WHO, input="n\n").exit_code != 0
    assert len(billed.invoices()) == 2
    result = billed.run("replay", "shop:orders", "--reprocess", *WHO, input="y\n")
    assert result.exit_code == 0, result.output
    assert "Apply 2 events to orders?" in result.output
    assert sorted(billed.invoices()) == [("a", 100), ("a", 101), ("b", 200), ("b", 201)]
    [action] = listed(billed, "actions", "shop:orders")
    assert (action["by"], action["why"], action["outcome"], action["count"]) == ("ada", "ticket 7", "done", 2)


def test_what_stands_still_is_said_and_its_job_goes_on_when_it_is_mended(billed: Project) -> None:
    right = (billed.folder / "shop.py").read_text()
    billed.write("shop.py", right.replace("total_cents < 0", "order_id == 'b'"))
    result = billed.run("replay", "shop:orders", "--reprocess", "--yes", *WHO)
    assert result.exit_code == 1
    assert "the replay is paused: 1 events of 2 are left: 1 of them failed" in " ".join(result.output.split())
    [job] = listed(billed, "jobs", "list", "shop:orders")
    assert (job["act"], job["state"], job["done"]) == ("replay", "paused", 1)
    refused = billed.run("replay", "shop:orders", "--reprocess", "--dry-run")
    assert refused.exit_code != 0
    assert job["id"] in refused.output
    billed.write("shop.py", right)
    assert billed.run("jobs", "resume", "shop:orders", job["id"], *WHO).exit_code == 0
    result = billed.run("jobs", "run", "shop:orders")
    assert result.exit_code == 0, result.output
    assert sorted(billed.invoices()) == [("a", 100), ("a", 101), ("b", 200), ("b", 201)]


def test_a_job_that_is_cancelled_lets_its_keys_go_on(billed: Project) -> None:
    found = billed.json("replay", "shop:orders", "--reprocess", "--detach", *WHO)
    assert isinstance(found, dict)
    assert found["job"]["state"] == "running"
    assert billed.run("jobs", "cancel", "shop:orders", found["job"]["id"], *WHO).exit_code == 0
    billed.place(("a", 300))
    billed.settle(3, 0)


@pytest.mark.parametrize("verb", ["resume", "cancel"])
def test_a_replay_that_stands_still_is_found_and_another_process_decides_about_it(billed: Project, verb: str) -> None:
    """Each command is a process of its own: whoever began the replay is gone."""
    right = (billed.folder / "shop.py").read_text()
    billed.write("shop.py", right.replace("total_cents < 0", "order_id == 'b'"))
    assert billed.run("replay", "shop:orders", "--reprocess", "--yes", *WHO).exit_code == 1
    [job] = listed(billed, "jobs", "list", "shop:orders")
    billed.write("shop.py", right)
    billed.place(("b", 300))
    billed.settle(2, 1)  # it waits behind the closed key, and neither a person nor an alert would look for it there
    for command in ("doctor", "status"):
        said = " ".join(billed.run(command, "shop:orders").output.split())
        assert f"the replay {job['id']} of orders is paused" in said, said
        assert re.search(rf"posthouse jobs cancel \S+ {job['id']}", said), said
    assert billed.run("jobs", verb, "shop:orders", job["id"], *WHO).exit_code == 0
    if verb == "resume":
        said = " ".join(billed.run("doctor", "shop:orders").output.split())
        assert f"the replay {job['id']} of orders is run by nobody" in said, said
        assert billed.run("jobs", "run", "shop:orders").exit_code == 0
    billed.settle(3, 0)
    assert ("b", 301) in billed.invoices()
    assert f"the replay {job['id']}" not in billed.run("doctor", "shop:orders").output


def test_nobody_signs_in_by_a_name_on_a_command_line(billed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job takes a name that ends as those of a console for somebody who signed in there, and uses their grants."""
    monkeypatch.setenv("POSTHOUSE_OPERATOR", "ada (console)")
    for words in (("--by", "ada (console)"), ("--by", "ada  (console) (console)"), ()):
        found = billed.json("replay", "shop:orders", "--reprocess", "--detach", *words, "--why", "ticket 7")
        assert isinstance(found, dict)
        assert found["job"]["by"] == "ada"
        assert billed.run("jobs", "cancel", "shop:orders", found["job"]["id"], *words).exit_code == 0
    assert {action["by"] for action in listed(billed, "actions", "shop:orders")} == {"ada"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reprocess"], "say --why"),
        (["--consumer", "ordres", "--dry-run"], "Did you mean 'orders'?"),
        (["--type", "shop.orders.order.plced.v1", "--dry-run"], "no handler for"),
        (["--since", "2026-04-22T10:00:00Z", "--until", "2026-04-21T10:00:00Z", "--dry-run"], "is not before --until"),
        (["--from", "archive", "--dry-run"], "has no archive: say where it is"),
        (["--from", "stream", "--dry-run"], "replay from the log"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(billed: Project, words: list[str], said: str) -> None:
    result = billed.run("replay", "shop:orders", *words)
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())

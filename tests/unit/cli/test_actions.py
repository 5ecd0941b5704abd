"""`posthouse actions`: who did what, when and why."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Project

WHO = ("--by", "ada", "--why", "ticket 4711")


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_OPERATOR", "on-call")


def listed(project: Project, *filters: str) -> list[dict[str, object]]:
    found = project.json("actions", "shop:orders", *filters)
    assert isinstance(found, list)
    return found


def test_an_edit_leaves_who_when_why_and_the_fields_as_they_were_and_are(poisoned: Project) -> None:
    assert poisoned.run("held", "edit", "shop:orders", "1", "--set", "total_cents=5", *WHO).exit_code == 0
    (action,) = listed(poisoned)
    expected = {
        "verb": "held edit",
        "by": "ada",
        "why": "ticket 4711",
        "service": "orders",
        "consumer": "orders",
        "topic": "shop.orders.order",
        "tenant": "t1",
        "key": "bad",
        "target": "held event 1",
        "changed": {"state": ["dead", "retrying"], "total_cents": [-1, 5]},
        "outcome": "done",
        "count": 1,
    }
    assert {name: action[name] for name in expected} == expected
    assert str(action["at"]).startswith("20")


def test_each_verb_of_held_events_is_kept_and_nobody_is_the_default(poisoned: Project) -> None:
    assert poisoned.run("held", "retry", "shop:orders", "1").exit_code == 0
    assert poisoned.run("held", "release", "shop:orders", "1").exit_code == 0
    assert poisoned.run("held", "quarantine", "shop:orders", "1").exit_code == 0
    assert poisoned.run("held", "skip", "shop:orders", "2", *WHO).exit_code == 0
    found = [(a["verb"], a["by"], a["changed"]) for a in listed(poisoned)]
    assert found == [
        ("held skip", "ada", {"state": ["retrying", "skipped"]}),
        ("held quarantine", "on-call", {"state": ["retrying", "quarantined"]}),
        ("held release", "on-call", {"state": ["retrying", "retrying"]}),
        ("held retry", "on-call", {"state": ["dead", "retrying"]}),
    ]


def test_what_was_refused_changed_nothing_and_is_not_kept(poisoned: Project) -> None:
    assert poisoned.run("held", "skip", "shop:orders", "2").exit_code == 2
    assert listed(poisoned) == []
    assert poisoned.run("actions", "shop").stdout == "no operator has done anything\n"


def test_the_list_can_be_narrowed(poisoned: Project) -> None:
    poisoned.run("held", "retry", "shop:orders", "1", *WHO)
    poisoned.run("held", "skip", "shop:orders", "1")
    event = str(listed(poisoned)[0]["event_id"])
    assert [a["verb"] for a in listed(poisoned, "--verb", "held skip")] == ["held skip"]
    assert [a["verb"] for a in listed(poisoned, "--by", "ada")] == ["held retry"]
    assert [a["verb"] for a in listed(poisoned, "--event", event)] == ["held skip", "held retry"]
    assert listed(poisoned, "--event", "other") == []
    assert listed(poisoned, "--since", "2999-01-01T00:00:00Z") == []
    assert len(listed(poisoned, "--limit", "1")) == 1
    assert "there are more than 1" in poisoned.run("actions", "shop", "--limit", "1").stdout
    assert poisoned.run("actions", "shop", "--since", "yesterday").exit_code == 2
    assert poisoned.run("actions", "shop", "--verb", "seek").stdout == "nothing that fits was done\n"


def test_a_terminal_shows_who_did_what_and_why(poisoned: Project) -> None:
    poisoned.run("held", "edit", "shop:orders", "1", "--set", "total_cents=5", *WHO)
    wide = poisoned.run("actions", "shop", columns=160).stdout
    for part in ("ada", "held edit", "held event 1 of t1", "total_cents: -1 → 5", "ticket 4711", "1 action"):
        assert part in wide
    narrow = poisoned.run("actions", "shop", columns=60).stdout
    assert "total_cents: -1 → 5" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_personal_fields_are_said_to_have_changed_and_no_more(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    text = text.replace("from posthouse import", "from typing import Annotated\n\nfrom posthouse import Personal,")
    project.write("shop.py", text.replace('note: str = ""', 'note: Annotated[str, Personal("contact")] = ""'))
    project.place(("bad", -1))
    project.settle(applied=0, held=1)
    assert project.run("held", "edit", "shop:orders", "1", "--set", "note=ada@home.example").exit_code == 0
    (action,) = listed(project)
    assert action["changed"] == {"state": ["dead", "retrying"], "note": ["…", "…"]}


def test_a_seek_is_noted_before_it_begins_and_how_it_ended(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    where = ("seek", "shop:orders", "--time", "2020-01-01T00:00:00Z")
    assert "WOULD MOVE TO" in project.run(*where, "--dry-run").stdout
    assert listed(project) == []
    assert project.run(*where, "--yes", *WHO).exit_code == 0
    (action,) = listed(project)
    assert (action["verb"], action["by"], action["outcome"]) == ("seek", "ada", "done")
    assert action["changed"] == {"unread in shop.orders.order": [0, 1]}


def test_a_timer_is_cancelled_by_somebody(project: Project) -> None:
    project.place(("a", 1), after=3600.0, timer="reminder")
    assert project.run("timers", "shop", "--cancel", "nothing", "--tenant", "t1").exit_code == 2
    assert project.run("timers", "shop", "--cancel", "reminder", "--tenant", "t1", *WHO).exit_code == 0
    (action,) = listed(project)
    assert (action["verb"], action["target"], action["tenant"]) == ("timers cancel", "timer reminder", "t1")


def test_a_retry_of_what_the_broker_refused_is_kept(poisoned: Project) -> None:
    poisoned.put(b"x" * (8 * 1024 * 1024 - 10))
    poisoned.settle_strange(1)
    rows = poisoned.json("outbox", "list", "shop")
    assert isinstance(rows, list)
    assert poisoned.run("outbox", "retry", "shop", str(rows[0]["id"]), "--why", "it takes more now").exit_code == 0
    assert poisoned.run("outbox", "retry", "shop", "999").exit_code == 2
    (action,) = listed(poisoned)
    assert (action["verb"], action["event_id"], action["why"]) == (
        "outbox retry",
        rows[0]["event_id"],
        "it takes more now",
    )
    assert action["changed"] == {"state": ["quarantined", "due"]}


def test_a_restored_store_remembers_who_said_so(project: Project) -> None:
    project.place(("a", 1))
    assert project.run("db", "restored", "shop", "--dry-run").exit_code == 0
    assert listed(project) == []
    assert project.run("db", "restored", "shop", "--yes", *WHO).exit_code == 0
    assert [(a["verb"], a["why"]) for a in listed(project)] == [("db restored", "ticket 4711")]

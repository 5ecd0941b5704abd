"""`posthouse held`: look at what could not be applied, and deal with it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from posthouse.store import HeldEvent
from tests.unit.cli.conftest import Project


def test_a_list_shows_each_held_event_and_why(poisoned: Project) -> None:
    result = poisoned.run("held", "list", "shop:orders")
    assert result.exit_code == 0
    assert "dead" in result.stdout
    assert "blocked" in result.stdout
    assert "ValueError: a negative total: [bold]-1[/bold]" in result.stdout
    assert "2 held events: 1 blocked, 1 dead" in result.stdout


def test_what_an_error_says_has_no_power_over_the_terminal(poisoned: Project) -> None:
    assert "\x1b" not in poisoned.run("held", "list", "shop:orders").stdout
    assert "\\x1b[31mcents" in poisoned.run("held", "show", "shop:orders", "1").stdout


def test_a_list_without_events_says_so(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    assert project.run("held", "list", "shop:orders").stdout == "nothing is held\n"
    assert project.json("held", "list", "shop:orders") == []


def test_a_list_can_be_narrowed(poisoned: Project) -> None:
    def ids(*filters: str) -> list[int]:
        found = poisoned.json("held", "list", "shop:orders", *filters)
        assert isinstance(found, list)
        return [event["id"] for event in found]

    assert ids() == [1, 2]
    assert ids("--state", "dead") == [1]
    assert ids("--tenant", "t1", "--key", "bad", "--consumer", "orders", "--topic", "shop.orders.order") == [1, 2]
    assert ids("--tenant", "t2") == []
    assert ids("--limit", "1") == [1]


def test_a_shortened_list_says_that_there_is_more(poisoned: Project) -> None:
    assert "there are more than 1" in poisoned.run("held", "list", "shop:orders", "--limit", "1").stdout


def test_a_misspelled_consumer_is_refused_with_a_suggestion(poisoned: Project) -> None:
    result = poisoned.run("held", "list", "shop:orders", "--consumer", "order")
    assert result.exit_code == 2
    assert "Did you mean 'orders'?" in result.stderr


def test_a_narrow_terminal_gets_one_block_per_event(poisoned: Project) -> None:
    lines = poisoned.run("held", "list", "shop:orders", columns=50).stdout.splitlines()
    assert any(line.split() == ["STATE", "dead"] for line in lines)
    assert max(map(len, lines)) <= 50


def test_one_event_is_shown_with_envelope_payload_error_and_stack(poisoned: Project) -> None:
    text = poisoned.run("held", "show", "shop:orders", "1").stdout
    for part in ("shop.orders.order.placed.v1", '"total_cents": -1', "attempts spent", "Traceback", "1 (lineage 1)"):
        assert part in text


def test_one_event_as_json_holds_its_payload(poisoned: Project) -> None:
    shown = poisoned.json("held", "show", "shop:orders", "1")
    assert isinstance(shown, dict)
    assert shown["envelope"]["data"] == {"order_id": "bad", "total_cents": -1, "note": ""}
    assert (shown["state"], shown["attempts"], shown["key"]) == ("dead", 1, "bad")


def test_an_unknown_number_is_refused(poisoned: Project) -> None:
    result = poisoned.run("held", "show", "shop:orders", "99")
    assert result.exit_code == 2
    assert "no held event has the number 99" in result.stderr


def test_an_edited_event_is_applied_and_those_behind_it_follow(poisoned: Project) -> None:
    assert poisoned.run("held", "edit", "shop:orders", "1", "--set", "total_cents=50").exit_code == 0
    poisoned.settle(applied=4, held=0)
    assert [total for order, total in poisoned.invoices() if order == "bad"] == [50, 7]


def test_an_edit_that_breaks_the_contract_is_refused_and_changes_nothing(poisoned: Project) -> None:
    result = poisoned.run("held", "edit", "shop:orders", "1", "--set", "total_cents=much")
    assert result.exit_code == 2
    assert "not a valid OrderPlaced" in result.stderr
    shown = poisoned.json("held", "show", "shop:orders", "1")
    assert isinstance(shown, dict)
    assert shown["state"] == "dead"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "totl_cents=5"], "Did you mean 'total_cents'?"),
        (["--set", "total_cents"], "--set takes FIELD=VALUE"),
        (["--set", "order_id=other"], "order_id orders this event and cannot change"),
        (["--set", "note.text=hello"], "note is not an object"),
        (["--set", "total_cents=-1"], "the payload is as it was"),
        (["--data", "nowhere.json"], "cannot read nowhere.json"),
        (["--data", "-", "--set", "total_cents=1"], "choose one"),
        ([], "no editor is set"),
    ],
)
def test_an_edit_that_cannot_work_says_why(poisoned: Project, arguments: list[str], complaint: str) -> None:
    result = poisoned.run("held", "edit", "shop:orders", "1", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_payload_can_come_from_stdin_or_a_file(poisoned: Project) -> None:
    payload = '{"order_id": "bad", "total_cents": 3}'
    assert poisoned.run("held", "edit", "shop:orders", "1", "--data", "-", input=payload).exit_code == 0
    file = poisoned.write("payload.json", payload.replace("3", "4"))
    assert poisoned.run("held", "edit", "shop:orders", "1", "--data", str(file)).exit_code == 0
    poisoned.settle(applied=4, held=0)
    assert ("bad", 4) in poisoned.invoices()


def test_the_editor_opens_with_the_payload(poisoned: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/-1/11/")
    assert poisoned.run("held", "edit", "shop:orders", "1").exit_code == 0
    poisoned.settle(applied=4, held=0)
    assert ("bad", 11) in poisoned.invoices()


def test_a_payload_that_does_not_fit_can_be_edited_again_or_left(
    poisoned: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/-1/null/")
    result = poisoned.run("held", "edit", "shop:orders", "1", input="n\n")
    assert result.exit_code == 1
    assert "not a valid OrderPlaced" in result.stderr


def test_a_retried_event_runs_again(poisoned: Project) -> None:
    poisoned.write("shop.py", (poisoned.folder / "shop.py").read_text().replace("total_cents < 0", "total_cents < -9"))
    assert poisoned.run("held", "retry", "shop:orders", "1").stdout == "1 runs again\n"
    poisoned.settle(applied=4, held=0)
    assert [total for order, total in poisoned.invoices() if order == "bad"] == [-1, 7]


def test_an_event_behind_another_cannot_be_retried_alone(poisoned: Project) -> None:
    result = poisoned.run("held", "retry", "shop:orders", "2")
    assert result.exit_code == 2
    assert "2 waits behind held event 1" in result.stderr


def test_retry_all_asks_first_and_counts_only_what_can_run(poisoned: Project) -> None:
    result = poisoned.run("held", "retry", "shop:orders", "--all", input="n\n")
    assert result.exit_code == 1
    assert "Run 1 held event of orders again?" in result.stderr
    assert poisoned.json("held", "retry", "shop:orders", "--all", "--yes") == {"done": [1], "refused": {}}


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["1", "--state", "dead"]])
def test_retry_wants_to_know_which_events(poisoned: Project, arguments: list[str]) -> None:
    assert poisoned.run("held", "retry", "shop:orders", *arguments).exit_code == 2


def test_a_key_goes_on_without_a_skipped_event(poisoned: Project) -> None:
    assert poisoned.run("held", "skip", "shop:orders", "1").stdout == "1 is skipped\n"
    poisoned.settle(applied=3, held=0)
    assert ("bad", 7) in poisoned.invoices()
    assert poisoned.run("status", "shop:orders").exit_code == 0


def test_an_event_that_its_key_left_behind_runs_only_by_force(poisoned: Project) -> None:
    poisoned.run("held", "skip", "shop:orders", "1")
    poisoned.settle(applied=3, held=0)
    refused = poisoned.run("held", "retry", "shop:orders", "1")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert poisoned.run("held", "retry", "shop:orders", "1", "--force").exit_code == 0


def test_a_quarantined_event_keeps_nobody_waiting(poisoned: Project) -> None:
    assert poisoned.run("held", "quarantine", "shop:orders", "1").exit_code == 0
    poisoned.settle(applied=3, held=1)


def test_a_released_key_runs_its_first_event_again(poisoned: Project) -> None:
    poisoned.write("shop.py", (poisoned.folder / "shop.py").read_text().replace("total_cents < 0", "total_cents < -9"))
    assert poisoned.run("held", "release", "shop:orders", "2").exit_code == 0
    poisoned.settle(applied=4, held=0)


def test_an_export_loses_nothing(poisoned: Project, tmp_path: Path) -> None:
    file = tmp_path / "held.jsonl"
    assert poisoned.run("held", "export", "shop:orders", "--output", str(file)).exit_code == 0
    events = [msgspec.json.decode(line, type=HeldEvent) for line in file.read_bytes().splitlines()]
    assert [(event.id, event.state, event.entry.sequence) for event in events] == [(1, "dead", 1), (2, "blocked", 2)]
    assert b'"total_cents":-1' in events[0].body
    assert "Traceback" in events[0].stack


def test_an_export_to_stdout_is_json_lines_and_nothing_else(poisoned: Project) -> None:
    lines = poisoned.run("held", "export", "shop:orders", "--state", "dead").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1]


def test_whoever_waits_is_told_for_whom_and_a_stack_begins_in_the_users_code(poisoned: Project) -> None:
    refused = poisoned.run("held", "retry", "shop:orders", "2")
    assert "2 waits behind held event 1" in refused.stderr
    stack = poisoned.run("held", "show", "shop:orders", "1").stdout.partition("Stack")[2]
    assert "in invoice" in stack
    assert "/posthouse/" not in stack
    nowhere = poisoned.run("held", "retry", "shop:orders", "99")
    assert "see `posthouse held list shop:orders`" in nowhere.stderr


def test_without_a_terminal_a_question_is_refused_with_the_option_that_answers_it(poisoned: Project) -> None:
    result = poisoned.run("held", "retry", "shop:orders", "--all")
    assert result.exit_code == 2
    assert "say --yes" in result.stderr

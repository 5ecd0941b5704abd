"""`posthouse catalog` shows, freezes and checks what services declare."""

from __future__ import annotations

import json
import re
from typing import cast

import pytest

from tests.unit.cli.conftest import SHOP, Project

FROZEN = "event-schemas/orders/order/placed/v1.json"


def test_the_catalogue_is_shown_for_people(project: Project) -> None:
    result = project.run("catalog", "shop")
    assert result.exit_code == 0
    assert "shop.orders.order.placed.v1  nobody  order_id  hot" in result.stdout
    assert "ordered per key: order_id" in result.stdout
    assert "shop.orders.order.placed.v1 (any field)" in result.stdout
    assert project.run("catalog", "show", "shop").stdout == result.stdout


def test_the_catalogue_is_one_json_value(project: Project) -> None:
    document = cast("dict[str, list[dict[str, object]]]", project.json("catalog", "shop"))
    assert [event["subject"] for event in document["events"]] == ["shop.orders.order.placed.v1"]
    assert [handler["name"] for handler in document["handlers"]] == ["shop.invoice"]
    assert project.run("catalog", "--json", "shop").exit_code == 0


def test_a_service_without_events_says_so(project: Project) -> None:
    project.write("quiet.py", "from posthouse import Service\nquiet = Service('quiet')\n")
    assert project.run("catalog", "quiet").stdout == "no events are declared\n"


def test_freezing_writes_files_once_and_the_check_agrees(project: Project) -> None:
    first = project.run("catalog", "freeze", "shop")
    assert first.exit_code == 0
    assert "1 event frozen, 5 files changed" in first.stdout
    schema = json.loads((project.folder / FROZEN).read_text())
    assert schema["$id"] == "schemas://orders/order/placed/v1"
    assert project.json("catalog", "freeze", "shop") == {"touched": [], "stale": []}
    assert project.run("catalog", "check", "shop").exit_code == 0
    assert project.run("catalog", "freeze", "shop", "--check").exit_code == 0


@pytest.mark.parametrize("command", [("check",), ("freeze", "--check")])
def test_a_change_fails_the_check_with_a_sentence_and_writes_nothing(
    project: Project, command: tuple[str, ...]
) -> None:
    project.run("catalog", "freeze", "shop")
    before = (project.folder / FROZEN).read_bytes()
    project.write("shop.py", SHOP.replace("total_cents: int\n", "total_cents: float\n"))
    result = project.run("catalog", *command, "shop")
    assert result.exit_code == 1
    assert "changed: shop.orders.order.placed.v1 changed without a new version" in result.stderr
    assert "1 disagreement between the code and event-schemas" in result.stderr
    assert (project.folder / FROZEN).read_bytes() == before


def test_disagreements_are_json_too(project: Project) -> None:
    result = project.run("catalog", "check", "shop", "--dir", "elsewhere", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["agree"] is False
    assert [one["kind"] for one in found["disagreements"]] == ["consumers", "missing", "topics"]


def test_a_retired_event_stays_until_it_is_pruned(project: Project) -> None:
    project.run("catalog", "freeze", "shop")
    project.write("shop.py", SHOP.replace("placed.v1", "placed.v2"))
    kept = project.run("catalog", "freeze", "shop")
    assert "1 schema no longer declared: --prune removes orders/order/placed/v1.json" in kept.stdout
    assert (project.folder / FROZEN).exists()
    assert project.run("catalog", "check", "shop").exit_code == 1
    project.run("catalog", "freeze", "shop", "--prune")
    assert not (project.folder / FROZEN).exists()
    assert project.run("catalog", "check", "shop").exit_code == 0


@pytest.mark.parametrize("path", ["orders/../../precious.json", "../precious.json", "orders/./../../precious.json"])
def test_a_lock_that_names_a_file_elsewhere_removes_nothing(project: Project, path: str) -> None:
    project.run("catalog", "freeze", "shop")
    precious = project.folder / "precious.json"
    precious.write_text("{}")
    place = project.folder / "event-schemas" / "catalogue.lock"
    lock = json.loads(place.read_text())
    lock["schemas"][path] = lock["schemas"]["orders/order/placed/v1.json"]
    place.write_text(json.dumps(lock))
    result = project.run("catalog", "freeze", "shop", "--prune")
    assert precious.exists()
    assert result.exit_code == 2
    assert "no place of a schema" in result.stderr


def test_a_folder_that_is_a_link_elsewhere_is_not_written_through(project: Project) -> None:
    elsewhere = project.folder / "elsewhere"
    elsewhere.mkdir()
    (project.folder / "event-schemas").mkdir()
    (project.folder / "event-schemas" / "orders").symlink_to(elsewhere)
    result = project.run("catalog", "freeze", "shop")
    assert result.exit_code == 2
    assert "leads out of" in result.stderr
    assert list(elsewhere.iterdir()) == []


def test_a_broken_lock_is_named_and_nothing_is_written(project: Project) -> None:
    project.run("catalog", "freeze", "shop")
    (project.folder / "event-schemas" / "catalogue.lock").write_text("<<<<<<< HEAD\n")
    result = project.run("catalog", "freeze", "shop")
    assert result.exit_code == 2
    assert "catalogue.lock cannot be read" in result.stderr
    assert "resolve the merge" in result.stderr


RIGHTS = """
[read]
"shop.orders.*" = ["ledger", "billing"]
[replay]
"shop.orders.*" = []
[publish]
"shop.orders.order" = ["erp"]
"""


def test_rights_are_shown_for_each_topic(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MAY READ" not in project.run("catalog", "shop").stdout
    assert cast("dict[str, object]", project.json("catalog", "shop"))["rights"] == []
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(project.write("rights.toml", RIGHTS)))
    shown = [re.split(r"\s{2,}", line.strip()) for line in project.run("catalog", "shop").stdout.splitlines()]
    assert ["shop.orders.order", "orders, erp", "orders, billing, ledger", "nobody", "orders"] in shown
    assert cast("dict[str, object]", project.json("catalog", "shop"))["rights"] == [
        {
            "topic": "shop.orders.order",
            "publish": ["orders", "erp"],
            "read": ["orders", "billing", "ledger"],
            "replay": [],
            "services": ["orders"],
        }
    ]
    assert (
        "| `shop.orders.order` | `orders`, `erp` | `orders`, `billing`, `ledger` | nobody | `orders` |"
        in project.run("catalog", "export", "markdown", "shop").stdout
    )


def test_what_rights_leave_open_is_shown_as_open(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(project.write("rights.toml", "grants = true\n")))
    shown = project.run("catalog", "shop").stdout
    assert "whoever declares it" in shown
    assert "whoever reads it" in shown
    assert "## Who may what" in project.run("catalog", "export", "markdown", "shop").stdout


def test_a_bundle_is_the_same_each_time_and_is_published_once(project: Project) -> None:
    assert project.run("catalog", "freeze", "shop").exit_code == 0
    place = project.folder / "published"
    first = project.json("catalog", "bundle", "--out", "one.json", "--to", f"file://{place}")
    again = project.json("catalog", "bundle", "--out", "two.json", "--to", f"file://{place}")
    assert isinstance(first, dict)
    assert isinstance(again, dict)
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["bundle"] == again["bundle"]
    assert (project.folder / "one.json").read_bytes() == (project.folder / "two.json").read_bytes()
    assert (place / f"{first['bundle']}.json").read_bytes() == (project.folder / "one.json").read_bytes()
    assert first["schemas"] == 1
    assert sorted(file.name for file in place.iterdir() if not file.name.startswith(".")) == sorted(
        ["latest.json", f"{first['bundle']}.json"]
    )


def test_a_bundle_is_signed_by_a_key_for_contracts_and_by_no_other(project: Project) -> None:
    assert project.run("catalog", "freeze", "shop").exit_code == 0
    for id, use in (("mine", "contracts"), ("facts", "facts")):
        made = project.run("keys", "new", id, "--use", use, "--source", "/shop", "--private", "private.keys")
        assert made.exit_code == 0, made.output
    to = (
        "catalog",
        "bundle",
        "--to",
        f"file://{project.folder}/published",
        "--private",
        "private.keys",
        "--keys",
        "keys.toml",
    )
    wrong = project.run(*to, "--key", "facts")
    assert (wrong.exit_code, "signs facts, and no contracts" in wrong.stderr) == (2, True)
    unknown = project.run(*to, "--key", "nobodys")
    assert (unknown.exit_code, "is not in keys.toml" in unknown.stderr.replace("\n", "")) == (2, True)
    signed = project.run(*to, "--key", "mine")
    assert signed.exit_code == 0, signed.output
    assert "signed by mine" in signed.stdout
    pointer = json.loads((project.folder / "published" / "latest.json").read_text())
    assert (pointer["key"], len(pointer["signature"])) == ("mine", 88)


def test_without_frozen_files_there_is_nothing_to_bundle(project: Project) -> None:
    result = project.run("catalog", "bundle")
    assert (result.exit_code, "run `posthouse catalog freeze" in result.stderr) == (2, True)

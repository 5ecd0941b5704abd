"""`posthouse grant`: asked for by one, approved by another, used, revoked; and in the operators' log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import SHOP, Project

RIGHTS = """
from posthouse import App, Rights

App(orders, rights=Rights(grants=True))
"""


@pytest.fixture
def dead(poisoned: Project) -> int:
    """The number of a dead event of a project that asks for grants."""
    poisoned.write("shop.py", SHOP + RIGHTS)
    found: Any = poisoned.json("held", "list", "shop:orders", "--state", "dead")
    return int((found["held"] if isinstance(found, dict) else found)[0]["id"])


def as_login(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("posthouse.operators._login", lambda: name)


def request(project: Project, *options: str) -> str:
    grant: Any = project.json("grant", "request", "shop:orders", "--why", "ticket 7", *options)
    assert grant["state"] == "asked"
    return str(grant["id"])


def test_one_asks_another_approves_and_it_is_used_up(
    project: Project, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_login(monkeypatch, "ada")
    refused = project.run("held", "retry", "shop:orders", str(dead), "--by", "ada")
    assert refused.exit_code == 2
    assert "posthouse grant request" in refused.output
    grant = request(project, "--as", "ada", "--tenant", "t1", "--most", "1")
    own = project.run("grant", "approve", "shop:orders", grant, "--as", "grace")
    assert own.exit_code == 2
    assert "another one approves" in own.output
    as_login(monkeypatch, "grace")
    approved: Any = project.json("grant", "approve", "shop:orders", grant, "--as", "grace", "--why", "seen")
    assert (approved["state"], approved["approved_by"]) == ("running", "grace")
    as_login(monkeypatch, "ada")
    assert project.run("held", "retry", "shop:orders", str(dead), "--by", "ada").exit_code == 0
    shown: Any = project.json("grant", "show", "shop:orders", grant)
    assert (shown["state"], shown["used"]) == ("spent", 1)
    assert "ticket 7" in project.run("grant", "show", "shop:orders", grant).output
    noted: Any = project.json("actions", "shop:orders", "--verb", "grant")
    said = noted["actions"] if isinstance(noted, dict) else noted
    assert [one["verb"] for one in said] == ["grant approve", "grant request"]


@pytest.mark.usefixtures("dead")
def test_what_is_revoked_is_listed_and_runs_no_more(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    as_login(monkeypatch, "ada")
    grant = request(project, "--as", "ada", "--edit", "--minutes", "60")
    as_login(monkeypatch, "grace")
    project.json("grant", "approve", "shop:orders", grant, "--as", "grace")
    assert "edit" in project.run("grant", "list", "shop:orders", "--running").output
    revoked: Any = project.json("grant", "revoke", "shop:orders", grant, "--as", "grace")
    assert revoked["state"] == "revoked"
    assert project.json("grant", "list", "shop:orders", "--running") == []
    assert "no grant runs" in project.run("grant", "list", "shop:orders", "--running").output


@pytest.mark.usefixtures("dead")
def test_what_is_said_wrongly_is_refused_with_the_right_words(project: Project) -> None:
    for options, words in {
        ("--minutes", "61"): "1 to 60 minutes",
        ("--topic", "shop.orders.oder"): "'shop.orders.order'?",
        ("--consumer", "ordres"): "'orders'?",
        ("--since", "yesterday"): "is not a time",
    }.items():
        result = project.run("grant", "request", "shop:orders", "--why", "ticket 7", *options)
        assert result.exit_code == 2, options
        assert words in result.output, options
    assert "say why" in project.run("grant", "request", "shop:orders").output
    assert "no grant 'none'" in project.run("grant", "show", "shop:orders", "none").output

"""`posthouse outbox resend`: what a person sees, and what is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.unit.cli.conftest import Project


@pytest.fixture
def sent(project: Project) -> Project:
    """Three events of two keys, sent and applied; then the log is lost."""
    project.place(("a", 1), ("b", 2), ("a", 3))
    project.settle(applied=3, held=0)
    for file in project.folder.glob("posthouse-log.db*"):
        file.unlink()
    return project


def test_a_dry_run_counts_by_topic_and_tenant_and_sends_nothing(sent: Project) -> None:
    result = sent.run("outbox", "resend", "shop", "--dry-run")
    assert result.exit_code == 0, result.output
    heading, line = result.stdout.splitlines()[:2]
    assert heading.split() == ["SERVICE", "TOPIC", "TENANT", "EVENTS", "KEYS", "OLDEST", "NEWEST"]
    assert line.split()[:5] == ["orders", "shop.orders.order", "t1", "3", "2"]
    assert "3 events would be sent again; nothing was sent" in result.stdout
    assert sent.json("actions", "shop") == []


def test_a_copy_of_what_nobody_could_read_does_not_stand_in_its_way(project: Project) -> None:
    """A frame that was quarantined has a copy in the outbox, for its dead letter topic."""
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    project.put(b"{")
    project.settle_strange(1)
    result = project.run("outbox", "resend", "shop", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "shop.orders.order" in result.stdout


def test_it_asks_and_then_sends_and_notes_who_did_it(sent: Project) -> None:
    refused = sent.run("outbox", "resend", "shop", input="n\n")
    assert (refused.exit_code, "Send 3 events again?" in refused.output) == (1, True)
    result = sent.run("outbox", "resend", "shop", "--by", "ann", "--why", "the log was deleted", input="y\n")
    assert result.exit_code == 0, result.output
    assert "3 events sent again: see `posthouse status shop`" in result.stdout
    (act,) = sent.json("actions", "shop")  # type: ignore[misc]
    assert (act["verb"], act["by"], act["why"], act["count"]) == ("outbox resend", "ann", "the log was deleted", 3)  # type: ignore[has-type]
    assert "3 events" in sent.run("actions", "shop", columns=300).stdout
    sent.settle(applied=3, held=0)
    assert sorted(sent.invoices()) == [("a", 1), ("a", 3), ("b", 2)], "the inbox knew them"


def test_filters_choose_and_json_tells(sent: Project) -> None:
    report = sent.json("outbox", "resend", "shop", "--key", "a", "--dry-run")
    assert isinstance(report, dict)
    (service,) = report["services"]
    assert (report["dry_run"], service["parts"][0]["events"], service["gone"]) == (True, 2, {})
    for nothing in (("--tenant", "t9"), ("--until", "2020-01-01T00:00:00Z"), ("--missing",)):
        report = sent.json("outbox", "resend", "shop", *nothing)
        assert isinstance(report, dict)
        assert report["services"][0]["sent"] == 0, nothing
    acts = sent.json("actions", "shop")
    assert [act["count"] for act in acts] == [0, 0, 0], "nothing was sent"  # type: ignore[attr-defined]


def test_what_the_store_has_no_more_is_said_with_the_reason(sent: Project) -> None:
    with closing(sqlite3.connect(sent.folder / "orders.db")) as connection, connection:
        connection.execute("DELETE FROM posthouse_outbox WHERE id < 3")
    result = sent.run("outbox", "resend", "shop", "--dry-run")
    assert "1 event would be sent again" in result.stdout
    assert "orders: 2 more of shop.orders.order were sent and are in the store no more" in result.stdout
    assert "outbox_retention=1 d after they were sent, and at most 1,024 MiB" in result.stdout


def test_what_would_find_nothing_for_ever_is_refused_with_a_suggestion(project: Project) -> None:
    result = project.run("outbox", "resend", "shop", "--topic", "shop.orders.ordr")
    assert result.exit_code == 2
    assert "orders says nothing in 'shop.orders.ordr'. Did you mean 'shop.orders.order'?" in result.stderr
    back = project.run("outbox", "resend", "shop", "--since", "2026-01-02T00:00Z", "--until", "2026-01-01T00:00Z")
    assert "--since is not before --until" in back.stderr
    assert "does not say in which zone" in project.run("outbox", "resend", "shop", "--since", "2026-01-02").stderr
    project.write("mute.py", MUTE)
    assert "name those that do as well" in project.run("outbox", "resend", "mute", "--missing").stderr


MUTE = """
from posthouse import Payload, Service

mute = Service("mute", namespace="shop")


@mute.event("thing.done.v1")
class Done(Payload):
    name: str
"""

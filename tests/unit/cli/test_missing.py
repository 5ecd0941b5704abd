"""Events that a consumer never got: `status` names the command, `resend` brings them, or an operator accepts that they are lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from posthouse.app import app_of
from posthouse.service import Service
from tests.unit.cli.conftest import Project

TOPIC = "shop.orders.order"
LOSS = ("outbox", "accept-loss", "shop", "--consumer", "orders", "--topic", TOPIC)


def lose(project: Project, *orders: tuple[str, int]) -> None:
    """These are said and sent, and the log is lost before anybody has read them."""
    project.place(*orders)

    async def send(service: Service) -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(service.run(only=["relay"], stop=stop))
        async with asyncio.timeout(20):
            while sum((await app_of(service).store.counts()).unsent.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stop.set()
        await running

    project.with_service(send)
    for file in project.folder.glob("posthouse-log.db*"):
        file.unlink()


def forget_what_was_sent(project: Project) -> None:
    with closing(sqlite3.connect(project.folder / "orders.db")) as connection, connection:
        connection.execute("DELETE FROM posthouse_outbox")


def line_of(project: Project) -> Any:
    return json.loads(project.run("status", "shop", "--json").stdout)["lines"][0]


@pytest.fixture
def short(project: Project) -> Project:
    """One event was applied, two are missing."""
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    lose(project, ("a", 2), ("b", 3))
    project.settle(applied=1, held=0)  # the topic is made again
    return project


def test_status_names_the_command_and_the_command_brings_them_back(short: Project) -> None:
    result = short.run("status", "shop")
    assert result.exit_code == 1
    assert "2 missing" in result.stdout
    command = f"posthouse outbox resend shop --topic {TOPIC} --missing --dry-run"
    assert f"`{command}`" in result.stdout
    assert "orders in shop.orders.order: 2 events missing; the store of orders still has" in result.stdout
    looked = short.run(*command.split()[1:])
    assert "2 events would be sent again" in looked.stdout
    assert short.run(*command.split()[1:-1], "--yes").exit_code == 0
    short.settle(applied=3, held=0)
    assert sorted(short.invoices()) == [("a", 1), ("a", 2), ("b", 3)]
    result = short.run("status", "shop")
    assert "adds up ✓" in result.stdout
    assert "missing" not in result.stdout


def test_what_is_nowhere_any_more_can_be_accepted_as_lost_and_the_next_loss_alarms(short: Project) -> None:
    forget_what_was_sent(short)
    result = short.run("status", "shop")
    command = f"posthouse outbox accept-loss shop --consumer orders --topic {TOPIC} --why"
    assert "has no event of this topic any more that could be sent again" in result.stdout
    assert command in result.stdout
    assert short.run(*command.split()[1:-1]).exit_code == 2, "a reason is wanted"
    done = short.run(*command.split()[1:], "the disk died", "--by", "ann", input="y\n")
    assert done.exit_code == 0, done.output
    assert "Accept that 2 events of orders in shop.orders.order are lost?" in done.output
    result = short.run("status", "shop")
    assert (result.exit_code, "0 (2 lost)" in result.stdout, "adds up ✓" in result.stdout) == (0, True, True)
    assert "2 events accepted as lost, the last time by ann on 20" in result.stdout
    assert ": the disk died" in result.stdout
    (act,) = [act for act in short.json("actions", "shop") if act["verb"] == "outbox accept-loss"]  # type: ignore[attr-defined]
    assert (act["by"], act["count"], act["consumer"]) == ("ann", 2, "orders")
    lose(short, ("c", 4))
    short.settle(applied=1, held=0)
    assert (short.run("status", "shop").exit_code, line_of(short)["difference"]) == (1, 1)


def test_what_comes_after_all_is_put_right_by_saying_it_once_more(short: Project) -> None:
    assert short.run(*LOSS, "--why", "lost", "--yes").exit_code == 0
    assert line_of(short)["difference"] == 0
    assert short.run("outbox", "resend", "shop", "--yes").exit_code == 0
    short.settle(applied=3, held=0)
    result = short.run("status", "shop")
    assert result.exit_code == 1
    assert "2 that were accepted as lost came after all" in result.stdout
    assert short.json(*LOSS, "--why", "they came") == {
        "consumer": "orders",
        "topic": TOPIC,
        "accepted": -2,
        "lost": 0,
    }
    assert (line_of(short)["difference"], line_of(short)["lost"]) == (0, 0)


def test_of_two_who_accept_one_loss_the_second_is_told_to_look_again(
    short: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object, **__: object) -> bool:
        assert short.run(*LOSS, "--why", "the disk died", "--by", "bob", "--yes").exit_code == 0
        return True

    monkeypatch.setattr("typer.confirm", meanwhile)
    result = short.run(*LOSS, "--why", "the disk died", "--by", "ann")
    assert result.exit_code == 2
    assert "orders in shop.orders.order: somebody else has accepted a loss there meanwhile: look again" in result.stderr
    assert (line_of(short)["difference"], line_of(short)["lost"]) == (0, 2)
    assert [act["by"] for act in short.json("actions", "shop") if act["verb"] == "outbox accept-loss"] == ["bob"]  # type: ignore[attr-defined]


@pytest.fixture
def waiting(project: Project) -> Project:
    """Number 2 of key a and all of key b are lost, and number 3 of a waits."""
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    lose(project, ("a", 2), ("b", 3))
    project.place(("a", 4))
    project.settle(applied=1, held=1)
    return project


def test_no_loss_is_accepted_while_a_key_waits_for_it(waiting: Project) -> None:
    refused = waiting.run(*LOSS, "--why", "the disk died", "--yes")
    assert refused.exit_code == 2
    assert "1 event of orders in shop.orders.order waits at a gap" in refused.stderr
    assert "`posthouse held release shop 1`" in refused.stderr
    assert waiting.run("held", "release", "shop", "1").exit_code == 0
    waiting.settle(applied=2, held=0)
    assert waiting.run(*LOSS, "--why", "the disk died", "--yes").exit_code == 0
    line = line_of(waiting)
    assert (line["verdict"], line["skipped"], line["lost"], line["held"]) == ("adds up", 1, 1, {})


def test_a_gap_that_is_older_than_its_deadline_is_for_a_person_and_a_young_one_is_not(waiting: Project) -> None:
    change(waiting, f"INSERT INTO posthouse_loss VALUES ('orders', '{TOPIC}', 2)")
    young = waiting.run("status", "shop")
    assert (young.exit_code, "adds up ✓" in young.stdout, line_of(waiting)["overdue"]) == (0, True, 0)
    change(waiting, "UPDATE posthouse_held SET next_at = 1")
    old = waiting.run("status", "shop")
    assert (old.exit_code, line_of(waiting)["overdue"]) == (1, 1)
    assert "orders in shop.orders.order: 1 event waits too long at a gap" in old.stdout
    assert "`posthouse held list shop --state gap`" in old.stdout


def change(project: Project, sql: str) -> None:
    with closing(sqlite3.connect(project.folder / "orders.db")) as connection, connection:
        connection.execute(sql)


def test_whoever_accepts_a_loss_is_told_that_it_could_be_mended(short: Project) -> None:
    result = short.run(*LOSS, "--why", "hurry", input="n\n")
    assert result.exit_code == 1
    assert "outbox resend shop" in result.output
    assert line_of(short)["lost"] == 0


def test_no_loss_is_accepted_where_there_is_none(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    result = project.run(*LOSS, "--why", "to be sure", "--yes")
    assert (result.exit_code, "orders lacks nothing in shop.orders.order" in result.stderr) == (2, True)
    wrong = project.run("outbox", "accept-loss", "shop", "--consumer", "ordrs", "--topic", TOPIC, "--why", "x")
    assert "Did you mean 'orders in shop.orders.order'?" in wrong.stderr

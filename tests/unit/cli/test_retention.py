"""`posthouse retention`: what a person sees, and what goes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from posthouse.store import HeldEvent
from tests.unit.cli.conftest import SHOP, Project

DAY = 86_400.0


def aged(project: Project, days: float) -> None:
    """Everything came so many days earlier."""
    (store,) = (file for file in project.folder.glob("*.db") if "log" not in file.name)
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE posthouse_inbox SET received_at = received_at - ?", (days * DAY,))
        database.execute(
            "UPDATE posthouse_held SET last_at = last_at - ?, first_at = first_at - ?", (days * DAY, days * DAY)
        )


@pytest.fixture
def old(project: Project) -> Project:
    """One event that was given up long ago, and one that is dead, of as long ago."""
    project.place(("a", -1), ("b", -2), ("c", 3))
    project.settle(applied=1, held=2)
    first, _ = project.json("held", "list", "shop")  # type: ignore[misc]
    assert project.run("held", "skip", "shop", str(first["id"])).exit_code == 0  # type: ignore[has-type]
    aged(project, 400)
    return project


def test_status_shows_classes_topics_and_what_lies_in_the_store_and_changes_nothing(old: Project) -> None:
    result = old.run("retention", "status", "shop", columns=200)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "hot 7 days 30 days 1" in text
    assert "nobody has declared it here" in text
    assert "shop.orders.order 7 days, and until all have read them 7 days to 30 days" in text
    assert "held skipped 1 400 d 1" in text
    assert "held dead 1 400 d 0" in text
    assert "1 row due" in text
    assert sorted(one["state"] for one in old.json("held", "list", "shop")) == ["dead", "skipped"]  # type: ignore[attr-defined]


def test_plan_ends_with_two_while_something_is_due_and_apply_lets_it_go_and_notes_who_did_it(old: Project) -> None:
    assert old.run("retention", "plan", "shop").exit_code == 2
    refused = old.run("retention", "apply", "shop", input="n\n")
    assert (refused.exit_code, "Let 1 row go for good?" in refused.output) == (1, True)
    assert old.run("retention", "plan", "shop").exit_code == 2
    done = old.run("retention", "apply", "shop", "--by", "ann", "--why", "the year is over", input="y\n")
    assert done.exit_code == 0, done.output
    assert "0 rows of the inbox and 1 held event deleted" in done.stdout
    assert old.run("retention", "plan", "shop").exit_code == 0
    acts = old.json("actions", "shop")
    assert [(act["verb"], act["by"], act["why"], act["count"]) for act in acts][:1] == [  # type: ignore[attr-defined]
        ("retention apply", "ann", "the year is over", 1)
    ]
    assert [one["state"] for one in old.json("held", "list", "shop")] == ["dead"]  # type: ignore[attr-defined]
    assert "adds up" in old.run("status", "shop").stdout, "what was given up still counts"


SETTINGS = """
from posthouse import App, Settings
from posthouse.contracts.retention import DAY, Kept, RetentionClasses

app = App(
    orders,
    broker="embedded:///posthouse-log.db?retention=86400",
    settings=Settings(retention=RetentionClasses(), archive_rows="file://FOLDER/rows"),
)
"""


def test_a_log_shorter_than_its_class_is_told_by_plan_and_doctor_with_what_to_write(project: Project) -> None:
    project.write("shop.py", SHOP + SETTINGS.replace("FOLDER", str(project.folder)))
    project.place(("a", 1))
    plan = project.run("retention", "plan", "shop", columns=200)
    assert plan.exit_code == 2, plan.output
    assert "shorter" in plan.stdout
    doctor = project.run("doctor", "shop", columns=300)
    said = " ".join(doctor.stdout.split())
    assert "retention of shop.orders.order" in said
    assert "keeps frames 1 day, and its class asks for 7 days" in said
    assert "say retention=604800 in the broker's URL" in said


def test_what_is_let_go_is_in_the_folder_before(project: Project) -> None:
    project.write("shop.py", SHOP + SETTINGS.replace("FOLDER", str(project.folder)).replace("86400", "604800"))
    project.place(("a", -1))
    project.settle(applied=0, held=1)
    (event,) = project.json("held", "list", "shop")  # type: ignore[misc]
    assert project.run("held", "skip", "shop", str(event["id"])).exit_code == 0  # type: ignore[has-type]
    aged(project, 400)
    done = project.run("retention", "apply", "shop", "--yes")
    assert done.exit_code == 0, done.output
    (file,) = Path(project.folder, "rows").glob("held/*/*/*/*.jsonl")
    (line,) = file.read_text().splitlines()
    kept = msgspec.json.decode(line, type=HeldEvent)
    assert (kept.state, kept.type) == ("skipped", "shop.orders.order.placed.v1")
    assert b'"total_cents":-1' in kept.body

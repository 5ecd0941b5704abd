"""The check of erasures and forgeries finds what is wrong: it is shown each defect, and the same books without it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from melmastoon.demo.books import Books, Row
from melmastoon.demo.checks.conservation import conservation
from melmastoon.demo.checks.trust import ERASED, Trust, trust
from melmastoon.platform import SERVICES
from posthouse import app_of
from tests.unit.melmastoon.demo.test_checks import Shelf

BOX = {"$secret": 1, "of": "g1", "kind": "identity", "gap": "text", "box": "x"}
NOBODY = {"guest_id": "g1", "name": ERASED, "email": ERASED, "phone": ERASED}
ZALA = {**NOBODY, "name": "Zala"}


def shelf(**tables: Sequence[Row]) -> Shelf:
    """A guest was here, and was erased; read models know nothing more, unless a table says otherwise."""
    known: Mapping[str, Sequence[Row]] = {
        "FROM bookings": [("serena", "g1", json.dumps(NOBODY), "")],
        "FROM notification_contact": [("serena", "g1", ERASED, ERASED, ERASED)],
        "FROM sync_delta": [("serena", "g1", json.dumps({"guest": NOBODY, "note": ""}))],
    }
    made = Shelf(**{**known, **tables})
    made.say("iam.subject.erased.v1", "g1", subject="g1")
    made.say("reservation.booking.held.v1", guest={**NOBODY, "name": BOX, "email": BOX, "phone": BOX})
    return made


def found(made: Shelf, keys: Path) -> Trust:
    services = ["iam", "reservation", "notification", "sync", "ai_orchestrator", "payment"]
    return trust(Books(made, services), keys)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """One key that is gone, and one of somebody else."""
    file = tmp_path / "keys.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE posthouse_key (tenant, subject, wrapped)")
        connection.execute("INSERT INTO posthouse_key VALUES ('serena', 'g1', NULL), ('serena', 'g2', x'00')")
    return file


def test_who_was_erased_as_it_should_be_is_counted_and_nothing_is_found(keys: Path) -> None:
    seen = found(shelf(), keys)
    assert (seen.erased, seen.noise, seen.readable, seen.findings) == (1, 3, 0, [])


@pytest.mark.parametrize(
    ("tables", "place"),
    [
        ({"FROM bookings": [("serena", "g1", json.dumps(ZALA), "")]}, "the booking"),
        ({"FROM bookings": [("serena", "g1", json.dumps(NOBODY), "a cot")]}, "the booking"),
        ({"FROM notification_contact": [("serena", "g1", ERASED, "zala@example.org", ERASED)]}, "notification"),
        ({"FROM sync_delta": [("serena", "g1", json.dumps({"guest": ZALA}))]}, "sync"),
        ({"FROM ai_stay": [("serena", "g1")]}, "ai_orchestrator"),
    ],
)
def test_a_read_model_that_still_knows_the_guest_is_named(
    tables: Mapping[str, Sequence[Row]], place: str, keys: Path
) -> None:
    seen = found(shelf(**tables), keys)
    assert (seen.readable, seen.findings) == (1, [f"{place} still tells who g1 of serena was"])


def test_the_same_id_of_another_tenant_is_somebody_else(keys: Path) -> None:
    assert found(shelf(**{"FROM ai_stay": [("caravan", "g1")]}), keys).readable == 0


def test_a_value_that_was_said_in_plain_is_named(keys: Path) -> None:
    made = shelf()
    made.say("reservation.booking.modified.v1", guest=NOBODY, note="a cot")
    made.say("reservation.booking.cancelled.v1", guest={**NOBODY, "name": {**BOX, "$secret": 0}})
    assert (found(made, keys).noise, found(made, keys).readable) == (3, 1)


def test_a_key_that_is_still_there_is_named(keys: Path) -> None:
    with closing(sqlite3.connect(keys)) as connection, connection:
        connection.execute("UPDATE posthouse_key SET wrapped = x'00'")
    assert found(shelf(), keys).findings == ["the key of g1 of serena is still there"]


def test_a_forgery_is_what_nobody_said_and_is_quarantined_for_that(keys: Path) -> None:
    made = shelf(posthouse_held=[("billing", "x1", "forged: it is not as it was signed"), ("sync", "x2", "gap")])
    [captured] = [made.say("payment.intent.captured.v1")]
    assert {id for _, id in found(made, keys).forged} == {"x1"}
    true = shelf(posthouse_held=[("billing", captured, "forged: it is not as it was signed")])
    true.say("payment.intent.captured.v1")
    assert found(true, keys).forged == [], "somebody said it: then it is held, and missing"
    held = Shelf(posthouse_held=[("billing", "x1", "quarantined", "")])
    books = Books(held, ["billing"])
    assert (conservation(books, []).held, conservation(books, [], {("billing", "x1")}).held) == (1, 0)


def test_eight_consumers_read_the_topic_of_payments() -> None:
    groups = [topics for service in SERVICES for topics in app_of(service).opened.topology().groups.values()]
    assert sum("melmastoon.payment.intent" in topics for topics in groups) == 8

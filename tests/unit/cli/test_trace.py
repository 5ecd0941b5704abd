"""`posthouse trace` as people and programs see it."""

from __future__ import annotations

import importlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Project
from tests.unit.governance.exports import hotel

TARGETS = ("hotel:bookings", "hotel:rooms", "hotel:money")

DRIVE = """
import asyncio
import sys
from contextlib import AsyncExitStack

import hotel
from posthouse.watch.status import drained

SERVICES = (hotel.bookings, hotel.rooms, hotel.money)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def cancel(correlation, *bookings):
    async with AsyncExitStack() as stack:
        for service in SERVICES:
            await stack.enter_async_context(service.running())
        traced = {"traceparent": TRACEPARENT} if correlation == "traced" else {}
        async with hotel.bookings.transaction("t1", correlation=correlation, **traced) as tx:
            ids = [tx.publish(hotel.BookingCancelled(booking_id=booking)) for booking in bookings]
        await drained(*SERVICES)
    return ids


def main(correlation, *bookings):
    return asyncio.run(cancel(correlation, *bookings))
"""

FAILING = """
@money.on(AllocationReleased, policy=Policy(max_attempts=1))
async def settle(event: Event[AllocationReleased], tx: Tx) -> RefundPaid | FeeCharged:
    raise ValueError("the bank says \\x1b[31mno")
"""


class Hotel(Project):
    """Three services on the embedded default, in one folder."""

    def cancel(self, *bookings: str, correlation: str | None = None) -> list[str]:
        self.forget()
        found: list[str] = importlib.import_module("drive").main(correlation, *bookings)
        return found

    def break_refunds(self) -> None:
        text = Path(hotel.__file__).read_text(encoding="utf-8")
        head, rest = text.split("@money.on(AllocationReleased)")
        tail = rest.partition("\n\n\n")[2]
        self.write("hotel.py", head.replace("import Event,", "import Event, Policy,") + FAILING + "\n\n" + tail)


@pytest.fixture
def guests(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hotel:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Hotel(tmp_path)
    made.write("hotel.py", Path(hotel.__file__).read_text(encoding="utf-8"))
    made.write("drive.py", DRIVE)
    return made


def test_the_tree_names_type_service_time_tenant_key_and_consumers(guests: Hotel) -> None:
    guests.cancel("b1", correlation="req-1")
    result = guests.run("trace", "req-1", *TARGETS, columns=100)
    assert result.exit_code == 0
    first, heard, second, *_ = result.stdout.splitlines()
    assert first.startswith("hotel.bookings.booking.cancelled.v1  bookings  20")
    assert first.endswith("  t1  b1")
    assert heard == "│  → rooms applied"
    assert second.startswith("└─ hotel.rooms.allocation.released.v1  rooms  +0.")
    assert "3 events of 3 services within" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_id_of_an_event_does_as_well(guests: Hotel) -> None:
    (event_id,) = guests.cancel("b1")
    result = guests.run("trace", event_id, *TARGETS)
    assert "3 events of 3 services" in result.stdout
    assert f"correlation {event_id}" in result.stdout


def test_json_holds_the_events_in_the_order_of_the_tree(guests: Hotel) -> None:
    (event_id,) = guests.cancel("b1", correlation="req-1")
    found: Any = guests.json("trace", "req-1", *TARGETS)
    assert found["correlation"] == "req-1"
    assert [(event["depth"], event["service"]) for event in found["events"]] == [
        (0, "bookings"),
        (1, "rooms"),
        (2, "money"),
    ]
    first, second, _ = found["events"]
    assert second["causation"] == first["id"] == event_id
    assert first["consumers"] == [
        {
            "consumer": "rooms",
            "service": "rooms",
            "handler": "hotel.release",
            "state": "applied",
            "held": None,
            "note": "",
            "saga": None,
        }
    ]


def test_where_somebody_traces_it_says_under_which_id_a_collector_has_it(guests: Hotel) -> None:
    guests.cancel("b9", correlation="traced")
    found = guests.run("trace", "traced", *TARGETS)
    assert "correlation traced, trace 0af7651916cd43dd8448eb211c80319c" in " ".join(found.stdout.split())
    told = json.loads(guests.run("trace", "traced", *TARGETS, "--json").stdout)
    assert told["traces"] == ["0af7651916cd43dd8448eb211c80319c"]


def test_a_flow_that_came_is_ticked_off(guests: Hotel) -> None:
    guests.cancel("b1", correlation="req-1")
    result = guests.run("trace", "req-1", *TARGETS, "--flow", "cancellation")
    assert result.exit_code == 0
    assert "✓ hotel.money.refund.paid.v1" in result.stdout
    assert "· hotel.money.fee.charged.v1 may come, and did not" in result.stdout


def test_a_missing_fact_is_named_with_who_should_have_said_it(guests: Hotel) -> None:
    guests.break_refunds()
    guests.cancel("b1", correlation="req-1")
    result = guests.run("trace", "req-1", *TARGETS, "--flow", "cancellation")
    assert result.exit_code == 1
    assert "→ money dead, held event 1: ValueError: the bank says \\x1b[31mno" in result.stdout
    assert "✗ hotel.money.refund.paid.v1 is missing" in result.stdout
    assert (
        "hotel.settle says it on hotel.rooms.allocation.released.v1, and stands at dead, held event 1 of money"
        in result.stdout
    )
    missing = json.loads(guests.run("trace", "req-1", *TARGETS, "--flow", "cancellation", "--json").stdout)["flow"]
    assert [fact["subject"] for fact in missing["missing"]] == ["hotel.money.refund.paid.v1"]


def test_a_flow_that_did_not_begin_there_says_so(guests: Hotel) -> None:
    guests.write(
        "hotel.py",
        (guests.folder / "hotel.py").read_text(encoding="utf-8")
        + '\nmoney.flow("refunding", starts=FeeCharged, then=(CleaningPlanned,))\n',
    )
    guests.cancel("b1", correlation="req-1")
    result = guests.run("trace", "req-1", *TARGETS, "--flow", "refunding")
    assert result.exit_code == 1
    assert "✗ it did not begin here" in result.stdout


def test_nothing_found_ends_with_code_1_and_says_where_it_looked(guests: Hotel) -> None:
    guests.cancel("b1")
    result = guests.run("trace", "0192f1c4-0000-7000-8000-000000000000", *TARGETS)
    assert result.exit_code == 1
    assert "nothing of '0192f1c4-0000-7000-8000-000000000000' was found in bookings, rooms, money" in result.stderr
    assert "an earlier --since looks further back" in result.stderr


def test_since_must_be_a_time_with_a_zone(guests: Hotel) -> None:
    result = guests.run("trace", "req-1", *TARGETS, "--since", "2026-04-22T10:00:00")
    assert result.exit_code == 2
    assert "does not say in which zone" in result.stderr


def test_a_look_at_services_that_never_ran_finds_nothing_and_makes_no_log(guests: Hotel) -> None:
    for target in TARGETS:
        guests.run("db", "upgrade", target)
    result = guests.run("trace", "req-1", *TARGETS)
    assert result.exit_code == 1
    assert not (guests.folder / "posthouse-log.db").exists()


def test_the_log_is_left_as_it_was(guests: Hotel) -> None:
    guests.cancel("b1", correlation="req-1")
    before = guests.run("topology", "plan", *TARGETS, "--json").stdout
    guests.run("trace", "req-1", *TARGETS)
    assert guests.run("topology", "plan", *TARGETS, "--json").stdout == before
    with sqlite3.connect(guests.folder / "posthouse-log.db") as connection:
        assert sorted(connection.execute("SELECT name FROM groups")) == [("money",), ("rooms",)]
    connection.close()

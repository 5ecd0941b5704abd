"""`posthouse flow`: what is declared, whether it holds, and how it looks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Project
from tests.unit.governance.exports import hotel

TARGETS = ("hotel:bookings", "hotel:rooms", "hotel:money")


@pytest.fixture
def declared(project: Project) -> Project:
    project.write("hotel.py", Path(hotel.__file__).read_text(encoding="utf-8"))
    return project


def test_the_list_says_that_a_flow_is_complete(declared: Project) -> None:
    result = declared.run("flow", "list", *TARGETS, columns=100)
    assert result.exit_code == 0
    assert "cancellation" in result.stdout
    assert "2 must come, 1 may" in result.stdout
    assert "complete ✓" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_services_that_are_not_named_make_a_flow_partly_unknown(declared: Project) -> None:
    result = declared.run("flow", "list", *TARGETS[:2])
    assert result.exit_code == 0
    assert "partly unknown" in result.stdout
    assert "hotel.money.refund.paid.v1, hotel.money.fee.charged.v1 are not listed: name them too" in result.stdout


def test_a_broken_flow_ends_with_code_1_and_says_what_to_do(declared: Project) -> None:
    text = Path(hotel.__file__).read_text(encoding="utf-8").replace("@rooms.on(BookingCancelled)\n", "")
    declared.write("hotel.py", text)
    result = declared.run("flow", "list", *TARGETS)
    assert result.exit_code == 1
    assert "broken" in result.stdout
    assert "cancellation: hotel.rooms.allocation.released.v1 must come, but no handler that" in result.stdout
    assert "publishes=[…]" in result.stdout


def test_the_list_as_json_holds_the_facts_and_the_handlers(declared: Project) -> None:
    (flow,) = json.loads(declared.run("flow", "list", *TARGETS, "--json").stdout)
    assert flow["holds"] is True
    assert flow["then"] == ["hotel.rooms.allocation.released.v1", "hotel.money.refund.paid.v1"]
    assert flow["handlers"] == ["hotel.release", "hotel.settle"]


def test_a_flow_is_drawn(declared: Project) -> None:
    result = declared.run("flow", "draw", *TARGETS, "--flow", "cancellation")
    assert result.exit_code == 0
    assert result.stdout.startswith("**cancellation** of bookings\n\n```mermaid\nflowchart LR\n")


def test_a_misspelled_flow_gets_a_suggestion(declared: Project) -> None:
    result = declared.run("flow", "draw", *TARGETS, "--flow", "cancelation")
    assert result.exit_code == 2
    assert "no flow is called 'cancelation'. Did you mean 'cancellation'?" in result.stderr


def test_two_flows_of_one_name_are_told_apart_by_their_services(declared: Project) -> None:
    text = Path(hotel.__file__).read_text(encoding="utf-8")
    text += '\nmoney.flow("cancellation", starts=AllocationReleased, then=(RefundPaid,))\n'
    declared.write("hotel.py", text)
    refused = declared.run("flow", "draw", *TARGETS, "--flow", "cancellation")
    assert "say bookings/cancellation or money/cancellation" in refused.stderr
    drawn = declared.run("flow", "draw", *TARGETS, "--flow", "money/cancellation")
    assert "booking.cancelled" not in drawn.stdout


def test_without_flows_the_list_says_how_to_declare_one(project: Project) -> None:
    result = project.run("flow", "list", "shop:orders")
    assert result.exit_code == 0
    assert "no flow is declared: declare one with service.flow(…)" in result.stdout

"""The facts of the platform are those of its catalogue: 82 subjects, each with an owner, a key and a class of retention."""

from __future__ import annotations

from pathlib import Path

import pytest

from melmastoon.facts.everything import SERVICES, facts_of
from posthouse.contracts import EventType

SUBJECTS = Path(__file__).parents[1] / "events" / "data" / "melmastoon-subjects.txt"
FACTS = facts_of(SERVICES)
RECEIPT = "melmastoon.iam.subject.erased.v1"
"""What the platform says beside its catalogue: somebody was erased."""
TOKENS = [
    *("iam", "tenant", "property", "reservation", "inventory", "pricing", "housekeeping", "maintenance", "billing"),
    *("payment", "notification", "theme", "lock_integration", "search_aggregation", "ai_orchestrator", "file"),
    *("reporting", "analytics", "audit", "sync", "staff", "bff_tenant_booking"),
]

RETENTION = {
    **dict.fromkeys(["reservation", "inventory", "pricing", "housekeeping", "theme"], "warm"),
    **dict.fromkeys(["billing", "payment", "lock_integration", "audit", "ai_orchestrator"], "cold"),
    # The catalogue gives no class for the rest: who may do what is compliance, what only runs the day is hot.
    **dict.fromkeys(["iam", "tenant"], "cold"),
    **dict.fromkeys(["property", "maintenance", "file", "reporting", "analytics", "staff"], "warm"),
    **dict.fromkeys(["notification", "search_aggregation"], "hot"),
    "sync.cursor.advanced.v1": "hot",
    "sync.conflict.recorded.v1": "warm",
}


def test_the_subjects_are_the_82_of_the_catalogue() -> None:
    assert [fact.name for fact in FACTS if fact.name != RECEIPT] == sorted(SUBJECTS.read_text().split())
    assert len(FACTS) == 82 + 1


def test_there_are_22_services_under_the_tokens_of_the_grammar() -> None:
    assert [service.name for service in SERVICES] == TOKENS
    assert len(set(TOKENS)) == 22


def test_the_front_of_the_booking_site_says_nothing_of_its_own() -> None:
    assert [s.name for s in SERVICES if not facts_of([s])] == ["bff_tenant_booking"]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_each_fact_has_an_owner_a_key_a_description_and_its_class_of_retention(fact: EventType[object]) -> None:
    owners = {service.name: service.owner for service in SERVICES}
    assert fact.terms.owner == owners[fact.subject.service] != ""
    assert fact.key is not None
    assert fact.description.endswith(".")
    short = fact.name.removeprefix("melmastoon.")
    assert fact.terms.retention == RETENTION.get(short, RETENTION.get(fact.subject.service))


def test_facts_that_are_no_past_tense_are_those_that_the_grammar_lets_pass() -> None:
    names = {fact.name for fact in FACTS}
    assert {"melmastoon.reservation.booking.no_show.v1", "melmastoon.lock_integration.vendor.error.v1"} <= names


def test_facts_of_files_have_no_aggregate_and_share_one_topic() -> None:
    files = [fact for fact in FACTS if fact.subject.service == "file"]
    assert {fact.subject.aggregate for fact in files} == {None}
    assert {fact.topic for fact in files} == {"melmastoon.file"}


def test_every_service_speaks_the_envelope_of_the_platform() -> None:
    assert {service.envelope for service in SERVICES} == {"melmastoon"}

"""The verdicts of Confluent's and Karapace's tests, and ours beside them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from posthouse.governance.evolution import Mode, Outcome
from posthouse.governance.evolution.json_schema import compare
from tests.unit.governance.evolution.published_cases import CONFLUENT, DIFFERENT, KARAPACE, Case, Schema

DRAFT = "http://json-schema.org/draft-07/schema#"
CASES = [*CONFLUENT, *KARAPACE]
PAGE = Path(__file__).parents[4] / "docs" / "schema-evolution.md"


def text(schema: Schema) -> str:
    return json.dumps({"$schema": DRAFT, **schema} if isinstance(schema, dict) else schema)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_we_judge_as_the_registry_does_unless_the_difference_is_listed(case: Case) -> None:
    verdict = compare(text(case.old), text(case.new), Mode.BACKWARD)
    passes = case.passes is not (case.title in DIFFERENT)
    assert verdict.outcome is (Outcome.COMPATIBLE if passes else Outcome.INCOMPATIBLE), verdict.findings
    for finding in verdict.findings:
        assert finding.has_example, finding
        assert jsonschema_rs.is_valid(json.loads(text(case.old)), finding.example), finding
        assert not jsonschema_rs.is_valid(json.loads(text(case.new)), finding.example), finding


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_forward_is_backward_with_the_schemas_exchanged(case: Case) -> None:
    forward = compare(text(case.new), text(case.old), Mode.FORWARD)
    assert forward.outcome is compare(text(case.old), text(case.new), Mode.BACKWARD).outcome


def test_every_listed_difference_is_one_of_a_case() -> None:
    titles = [case.title for case in CASES]
    assert len(titles) == len(set(titles))
    assert set(DIFFERENT) <= set(titles)
    assert len(CASES) - len(DIFFERENT) > 130


def test_the_page_tells_every_difference() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for title in DIFFERENT:
        assert f"| {title} |" in page, title

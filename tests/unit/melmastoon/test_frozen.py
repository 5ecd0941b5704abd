"""What the platform says is frozen in event-schemas/, and the code says the same."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from melmastoon.facts.everything import facts_of
from melmastoon.platform import SERVICES, TARGETS
from posthouse.cli import app

ROOT = Path(__file__).parents[3] / "melmastoon"
FOLDER = str(ROOT / "event-schemas")


def test_the_code_is_as_it_was_frozen() -> None:
    """When this fails: `make freeze`, and look at what changed."""
    result = CliRunner().invoke(app, ["catalog", "check", "--dir", FOLDER, *TARGETS])
    assert result.exit_code == 0, result.output


def test_the_gate_compares_the_code_with_the_frozen_bundle() -> None:
    result = CliRunner().invoke(
        app, ["schema", "check", "--dir", FOLDER, "--against", FOLDER, "--format", "json", *TARGETS]
    )
    assert result.exit_code == 0, result.output


def test_every_fact_has_a_schema_in_its_place() -> None:
    for fact in facts_of(SERVICES):
        place = [fact.subject.service, fact.subject.aggregate, fact.subject.verb, f"v{fact.subject.version}.json"]
        file = Path(FOLDER, *(part for part in place if part))
        assert json.loads(file.read_text(encoding="utf-8"))["type"] == "object", file
    assert len(list(Path(FOLDER).rglob("v*.json"))) == 82 + 1  # the receipt of an erasure

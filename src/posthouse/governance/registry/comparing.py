"""What speaks against a new version of a subject, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Finding, Mode, Outcome, Verdict, Weight, across
from posthouse.governance.registry.format import Format

MOST = 50
"""Sentences that one answer holds at most: a schema of another kind altogether differs in every field."""


class Known(msgspec.Struct, frozen=True):
    """What a comparison needs of a schema. `name` is what sentences call it."""

    name: str
    type: str
    compiled: bytes


def complaints(formats: Mapping[str, Format], past: Sequence[Known], new: Known, level: Mode) -> list[str]:
    """One sentence for each thing that breaks a reader whom the level protects; none means compatible.

    `past` holds the versions that count, oldest first. Only the last one does unless the level is transitive.
    """
    if level is Mode.NONE:
        return []
    counted = past if level.transitive else past[-1:]
    strangers = [schema for schema in counted if schema.type != new.type]
    if strangers:
        return [f"the schema is {new.type}, and an earlier one of this subject is {strangers[-1].type}"]
    history = [(schema.name, schema.compiled) for schema in counted]
    try:
        return _sentences(across(history, new.compiled, level, formats[new.type].compare))
    except SchemaError as error:
        return [f"the schemas cannot be compared: {error}"]


def _sentences(verdict: Verdict) -> list[str]:
    if verdict.outcome is Outcome.COMPATIBLE:
        return []
    found = [finding for finding in verdict.findings if finding.weight is not Weight.NOTE]
    said = [_sentence(finding) for finding in found[:MOST]]
    return [*said, f"and {len(found) - MOST} more"] if len(found) > MOST else said


def _sentence(finding: Finding) -> str:
    place = finding.path or "/"
    return f"{finding.rule} at {place}: {finding.sentence} ({finding.breaks} break, against {finding.against}; {finding.way_out})"

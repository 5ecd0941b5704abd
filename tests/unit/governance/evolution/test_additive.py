"""Mode ADDITIVE: the table of what may change within one version of an event, row by row."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from posthouse.governance.evolution import Mode, Outcome, Verdict, Weight
from posthouse.governance.evolution.json_schema import Past, audit, compare

Schema = dict[str, object]

LINE = {
    "type": "object",
    "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["sku"],
}
STAY: Schema = {
    "type": "object",
    "properties": {
        "room": {"type": "string"},
        "nights": {"type": "integer", "minimum": 1, "maximum": 30},
        "state": {"enum": ["booked", "paid"]},
        "note": {"type": ["string", "null"]},
        "extras": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["room", "nights"],
    "$defs": {"line": LINE},
}


def changed(
    change: Callable[[dict[str, dict[str, object]], list[str], dict[str, dict[str, object]]], object],
) -> Schema:
    """A stay with its properties, required names and those of a line changed."""
    new = json.loads(json.dumps(STAY))
    change(new["properties"], new["required"], new["$defs"]["line"]["properties"])
    return dict(new)


def judged(new: Schema, old: Schema = STAY, past: list[Past] | None = None) -> Verdict:
    return compare(json.dumps(old), json.dumps(new), Mode.ADDITIVE, past=past)


def told(verdict: Verdict) -> set[tuple[str, str, Weight]]:
    return {(finding.path, finding.rule, finding.weight) for finding in verdict.findings}


def drop(fields: dict[str, dict[str, object]], required: list[str], name: str) -> None:
    del fields[name]
    required.remove(name)


def closed(schema: Schema) -> Schema:
    return {**copy.deepcopy(schema), "additionalProperties": False}


ADDED = changed(lambda fields, required, line: fields.update(guests={"type": "integer", "default": 1}))
NESTED = changed(lambda fields, required, line: line.update(note={"type": "string"}))


@pytest.mark.parametrize(
    ("old", "new"),
    [(STAY, ADDED), (STAY, NESTED), (closed(STAY), closed(ADDED)), (STAY, closed(STAY)), (closed(STAY), STAY)],
)
def test_an_optional_field_may_be_added_whether_or_not_objects_are_closed(old: Schema, new: Schema) -> None:
    assert judged(new, old).outcome is Outcome.COMPATIBLE
    assert not judged(new, old).findings


def test_a_value_may_be_added_to_an_enum_and_is_to_be_written_down() -> None:
    verdict = judged(changed(lambda fields, required, line: fields.update(state={"enum": ["booked", "paid", "left"]})))
    assert verdict.outcome is Outcome.COMPATIBLE
    assert told(verdict) == {("/state", "values-widened", Weight.NOTE)}
    assert "CHANGELOG.events.md" in verdict.findings[0].way_out


@pytest.mark.parametrize(
    ("change", "path", "rule"),
    [
        (lambda fields, required, line: required.append("note"), "/note", "required-added"),
        (lambda fields, required, line: (fields.update(vat={}), required.append("vat")), "/vat", "required-added"),
        (lambda fields, required, line: required.remove("nights"), "/nights", "required-removed"),
        (lambda fields, required, line: fields.pop("note"), "/note", "field-removed"),
        (lambda fields, required, line: line.pop("count"), "/extras/*/count", "field-removed"),
        (lambda fields, required, line: drop(fields, required, "room"), "/room", "field-removed"),
        (lambda fields, required, line: fields.update(nights={"type": "string"}), "/nights", "type-changed"),
        (lambda fields, required, line: fields.update(note={"type": "string"}), "/note", "type-narrowed"),
        (lambda fields, required, line: line.update(sku={}), "/extras/*/sku", "type-widened"),
        (lambda fields, required, line: fields.update(state={"enum": ["paid"]}), "/state", "values-narrowed"),
        (lambda fields, required, line: fields.update(state={"type": "string"}), "/state", "values-removed"),
        (lambda fields, required, line: fields["nights"].update(maximum=60), "/nights", "range-widened"),
    ],
)
def test_everything_else_needs_a_new_version(
    change: Callable[[dict[str, dict[str, object]], list[str], dict[str, dict[str, object]]], object],
    path: str,
    rule: str,
) -> None:
    verdict = judged(changed(change))
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert (path, rule, Weight.BREAKS) in told(verdict)
    assert all("version" in finding.way_out for finding in verdict.findings)


def test_a_rename_is_a_removal_and_the_new_name_is_guessed() -> None:
    verdict = judged(changed(lambda fields, required, line: fields.update(notes=fields.pop("note"))))
    assert told(verdict) == {("/note", "field-removed", Weight.BREAKS)}
    assert 'renamed to "notes"' in verdict.findings[0].sentence


def test_the_removal_of_a_required_field_shows_a_message_that_old_readers_refuse() -> None:
    verdict = judged(changed(lambda fields, required, line: drop(fields, required, "room")))
    assert verdict.findings[0].example == {"nights": 1}


TIGHTER = changed(lambda fields, required, line: (fields["nights"].update(maximum=14), line["sku"].update(maxLength=3)))


def stay(nights: int) -> dict[str, object]:
    return {"room": "12", "nights": nights}


def test_a_range_may_not_be_tightened_without_a_look_at_the_past() -> None:
    nothing: list[Past] = []
    for past in (None, nothing):
        verdict = judged(TIGHTER, past=past)
        assert verdict.outcome is Outcome.UNJUDGED
        assert "audit" in verdict.findings[0].way_out


def test_a_range_may_be_tightened_when_all_past_messages_fit() -> None:
    verdict = judged(TIGHTER, past=[Past(stay(3), 900), Past(stay(14), 100)])
    assert verdict.outcome is Outcome.COMPATIBLE
    assert {finding.weight for finding in verdict.findings} == {Weight.NOTE}
    assert "all 1,000 past messages" in verdict.findings[0].way_out


def test_a_past_message_outside_the_range_is_the_example() -> None:
    verdict = judged(TIGHTER, past=[Past(stay(3), 900), Past(stay(21), 7)])
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert verdict.findings[0].example == stay(21)
    assert "7 of 907" in verdict.findings[0].way_out


def test_an_audit_counts_what_does_not_fit() -> None:
    found = audit(json.dumps(TIGHTER), [Past(stay(nights)) for nights in range(1, 31)])
    assert (found.seen, found.refused, found.passed) == (30, 16, False)
    assert found.misfits[0] == stay(15)
    assert len(found.misfits) == 10
    assert not audit(json.dumps(TIGHTER), []).passed


def test_a_past_that_fits_excuses_nothing_but_tighter_ranges() -> None:
    verdict = judged(
        changed(lambda fields, required, line: required.append("note")), past=[Past({**stay(1), "note": "x"})]
    )
    assert verdict.outcome is Outcome.INCOMPATIBLE

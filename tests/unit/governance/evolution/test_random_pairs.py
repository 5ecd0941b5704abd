"""No value ever contradicts a verdict: random pairs of schemas against a validator of another maker."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import jsonschema_rs
import pytest

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Outcome, Reader, Verdict
from posthouse.governance.evolution.json_schema import compare
from posthouse.governance.evolution.json_schema.building import build
from posthouse.governance.evolution.json_schema.document import Document
from posthouse.governance.evolution.json_schema.nodes import Pool
from posthouse.governance.evolution.json_schema.proving import Prover
from posthouse.governance.evolution.json_schema.witness import Finder
from tests.kit.long import LONG
from tests.unit.governance.evolution.random_schemas import Chance

VALUES = 30
PAIRS = 400
SOME = 50_000 if LONG else 500


def judged(old: object, new: object, mode: Mode = Mode.FULL) -> Verdict | None:
    """None for the few pairs that are no schemas: references in circles."""
    try:
        return compare(json.dumps(old), json.dumps(new), mode)
    except SchemaError as error:
        if "refers to itself" not in str(error):
            raise
        return None


def validator(schema: dict[str, object], *, formats: bool) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=formats, offline=True)


class Tally:
    """What a run of pairs came to."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.values = 0
        self.contradictions: list[str] = []

    def add(self, seed: int) -> None:
        """Judge a pair both ways, and hold the verdicts against values."""
        chance = Chance(seed)
        old, new = chance.pair()
        for reader, mode in ((Reader.NEW, Mode.BACKWARD), (Reader.OLD, Mode.FORWARD)):
            verdict = judged(old, new, mode)
            if verdict is None:
                return
            self.outcomes[verdict.outcome] += 1
            writer, read = (old, new) if reader is Reader.NEW else (new, old)
            try:
                self.values += checked(chance, verdict, writer, read)
            except AssertionError as error:
                self.contradictions.append(f"seed {seed}: {error}")


def checked(chance: Chance, verdict: Verdict, writer: dict[str, object], read: dict[str, object]) -> int:
    """How many values were looked at; fails where one contradicts."""
    for finding in verdict.findings:
        if finding.has_example:
            assert validator(writer, formats=True).is_valid(finding.example), (finding, writer)
            assert not validator(read, formats=True).is_valid(finding.example), (finding, read)
    return check_values(chance, writer, read) if verdict.outcome is Outcome.COMPATIBLE else 0


@pytest.mark.slow
@pytest.mark.timeout(2 * 3_600)
def test_no_value_contradicts_a_verdict() -> None:
    tally = Tally()
    for seed in range(SOME):
        tally.add(seed)
    print(f"{SOME:,} pairs, {tally.values:,} values, {tally.outcomes}")
    assert tally.contradictions == []
    assert tally.outcomes[Outcome.COMPATIBLE] > SOME * 0.9, tally.outcomes
    assert tally.values > SOME * 40


def check_values(chance: Chance, writer: dict[str, object], reader: dict[str, object]) -> int:
    """How many values were written, and read."""
    count = 0
    values = sampled(chance, writer)
    for formats in (True, False):
        written, read = validator(writer, formats=formats), validator(reader, formats=formats)
        for value in values:
            if written.is_valid(value):
                count += 1
                assert read.is_valid(value), (
                    f"{json.dumps(value)}\nis written by {json.dumps(writer)}\nrefused by {json.dumps(reader)}"
                )
    return count


def sampled(chance: Chance, schema: dict[str, object]) -> list[object]:
    """Values of the schema where some can be found, others close to them, and any others."""
    pool = Pool()
    root = build(Document(json.dumps(schema), "it"), pool)
    near = list(islice(Finder(Prover(pool)).values(frozenset((root,)), frozenset()), 8))
    close = [chance.altered(value) for value in near for _ in range(8)]
    return [*near, *close, *(chance.altered(value) for value in close), *(chance.value() for _ in range(VALUES))]


@pytest.mark.slow
def test_most_pairs_are_judged_and_both_ways_happen_often() -> None:
    outcomes: Counter[Outcome] = Counter()
    for seed in range(PAIRS):
        old, new = Chance(seed).pair()
        verdict = judged(old, new, Mode.BACKWARD)
        if old != new and verdict is not None:
            outcomes[verdict.outcome] += 1
    total = outcomes.total()
    assert total > PAIRS * 0.7
    assert outcomes[Outcome.COMPATIBLE] > total * 0.25, outcomes
    assert outcomes[Outcome.INCOMPATIBLE] > total * 0.25, outcomes
    assert outcomes[Outcome.UNJUDGED] < total * 0.15, outcomes

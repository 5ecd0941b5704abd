"""How findings add up to a verdict."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.governance.evolution import Finding, Mode, Outcome, Reader, Verdict, Weight, across, judge


def finding(reader: Reader = Reader.NEW, weight: Weight = Weight.BREAKS, path: str = "/a") -> Finding:
    return Finding(path=path, rule="changed", breaks=reader, sentence="It changed.", way_out="Do not.", weight=weight)


@pytest.mark.parametrize(
    ("weights", "outcome"),
    [
        ((), Outcome.COMPATIBLE),
        ((Weight.NOTE,), Outcome.COMPATIBLE),
        ((Weight.NOTE, Weight.UNJUDGED), Outcome.UNJUDGED),
        ((Weight.UNJUDGED, Weight.BREAKS, Weight.NOTE), Outcome.INCOMPATIBLE),
    ],
)
def test_the_heaviest_finding_decides(weights: tuple[Weight, ...], outcome: Outcome) -> None:
    assert Verdict.of(finding(weight=weight) for weight in weights).outcome is outcome


@pytest.mark.parametrize(
    ("mode", "readers"),
    [
        (Mode.NONE, []),
        (Mode.BACKWARD, [Reader.NEW]),
        (Mode.BACKWARD_TRANSITIVE, [Reader.NEW]),
        (Mode.FORWARD, [Reader.OLD]),
        (Mode.FORWARD_TRANSITIVE, [Reader.OLD]),
        (Mode.FULL, [Reader.NEW, Reader.OLD]),
        (Mode.FULL_TRANSITIVE, [Reader.NEW, Reader.OLD]),
        (Mode.ADDITIVE, [Reader.NEW, Reader.OLD]),
    ],
)
def test_a_mode_asks_only_for_the_readers_that_it_protects(mode: Mode, readers: list[Reader]) -> None:
    verdict = judge(mode, lambda reader: Verdict.of([finding(reader)]))
    assert [found.breaks for found in verdict.findings] == readers
    assert verdict.compatible is (not readers)


def compare_lengths(old: str, new: str, mode: Mode) -> Verdict:
    """A format of one rule: a text must not become shorter."""
    assert not mode.transitive
    return Verdict.of([finding()] if len(new) < len(old) else [])


def test_a_transitive_mode_looks_at_every_past_version_and_names_the_newest_that_breaks() -> None:
    history = [("v1", "12345"), ("v2", "1234"), ("v3", "1")]
    assert across(history, "123", Mode.BACKWARD, compare_lengths).compatible
    verdict = across(history, "123", Mode.BACKWARD_TRANSITIVE, compare_lengths)
    assert [found.against for found in verdict.findings] == ["v2"]


def test_mode_none_compares_nothing_and_a_first_version_breaks_nobody() -> None:
    assert across([("v1", "12345")], "1", Mode.NONE, compare_lengths).compatible
    assert across([], "1", Mode.FULL_TRANSITIVE, compare_lengths).compatible


def test_a_null_example_is_an_example_and_a_missing_one_is_left_out_of_the_json() -> None:
    without = finding()
    null = msgspec.structs.replace(without, example=None)
    assert (without.has_example, null.has_example) == (False, True)
    assert b"example" not in msgspec.json.encode(without)
    assert b'"example":null' in msgspec.json.encode(null)
    assert msgspec.json.decode(msgspec.json.encode(null), type=Finding) == null

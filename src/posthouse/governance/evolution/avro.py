"""Avro: whether one schema reads what was written with another, by the resolution rules of its specification.

Where Confluent and Karapace let a change pass that gives readers other values than were written (another unit of time,
another scale of a decimal), it breaks here: `docs/registry.md` lists the differences.
"""

from __future__ import annotations

import contextlib

import msgspec

from posthouse.governance.evolution.avro_resolution import MOST_PAIRS, Place, Resolution, TooManyPairs
from posthouse.governance.evolution.avro_rules import Rules, Trouble
from posthouse.governance.evolution.avro_sample import NoSample
from posthouse.governance.evolution.avro_types import AvroType, parse_avro, read_avro
from posthouse.governance.evolution.finding import Finding, Mode, Reader, Verdict, Weight, judge


def compare(old_text: str, new_text: str, mode: Mode) -> Verdict:
    """Two schemas as texts. Raises SchemaError when one of them is not an Avro schema."""
    return compare_types(read_avro(parse_avro(old_text)), read_avro(parse_avro(new_text)), mode)


def compare_types(old: AvroType, new: AvroType, mode: Mode) -> Verdict:
    """Two schemas that were read."""

    def one_way(who: Reader) -> Verdict:
        reader, writer = (new, old) if who is Reader.NEW else (old, new)
        return Verdict.of(_findings(reader, writer, who, additive=mode is Mode.ADDITIVE))

    return judge(mode, one_way)


def _findings(reader: AvroType, writer: AvroType, who: Reader, *, additive: bool) -> list[Finding]:
    rules = Rules(additive=additive, takes_away=additive and who is Reader.NEW)
    try:
        resolution = Resolution(rules, reader, writer)
    except TooManyPairs:
        sentence = f"the two schemas have more than {MOST_PAIRS:,} pairs of types to compare"
        way_out = "split the schema into smaller ones"
        return [
            Finding(path="", rule="too-large", breaks=who, sentence=sentence, way_out=way_out, weight=Weight.UNJUDGED)
        ]
    return [_finding(place, trouble, who) for place, trouble in resolution.troubles()]


def _finding(place: Place, trouble: Trouble, who: Reader) -> Finding:
    example: object = msgspec.UNSET
    if trouble.weight is Weight.BREAKS:
        with contextlib.suppress(NoSample):
            example = place.whole(trouble.example())
    return Finding(
        path=place.path + trouble.step,
        rule=trouble.rule,
        breaks=who,
        sentence=trouble.sentence,
        way_out=trouble.way_out,
        weight=trouble.weight,
        example=example,
    )

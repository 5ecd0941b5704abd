"""Examples made from a schema fit it, and differ."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal
from uuid import UUID

import jsonschema_rs
import msgspec
import pytest

from posthouse.contracts import payload_of
from posthouse.errors import SchemaError
from posthouse.governance.examples import examples, fullest, smallest
from tests.unit.governance.evolution.random_schemas import Chance


@dataclasses.dataclass(frozen=True)
class Guest:
    name: str
    born: date | None = None


@dataclasses.dataclass(frozen=True)
class Booking:
    booking_id: UUID
    state: Literal["held", "confirmed"]
    guests: list[Guest]
    price: Decimal
    arrives: datetime
    wakes: time
    stays: timedelta
    picture: bytes
    tags: dict[str, int]
    note: str = ""


BOOKING = payload_of(Booking)


def test_every_example_is_read_by_the_class_that_the_schema_was_made_from() -> None:
    found = examples(BOOKING.schema.text)
    assert len(found) >= 10
    assert len({msgspec.json.encode(one) for one in found}) == len(found)
    for one in found:
        BOOKING.decode(msgspec.json.encode(one))


def test_examples_show_optional_fields_values_of_enums_and_filled_lists() -> None:
    found = [one for one in examples(BOOKING.schema.text, most=100) if isinstance(one, dict)]
    assert {one["state"] for one in found} == {"held", "confirmed"}
    assert {"note" in one for one in found} == {True, False}
    assert {bool(one["guests"]) for one in found} == {True, False}


def test_the_smallest_has_what_is_required_and_the_fullest_everything() -> None:
    small, full = smallest(BOOKING.schema.text), fullest(BOOKING.schema.text)
    assert isinstance(small, dict)
    assert "note" not in small
    assert isinstance(full, dict)
    assert set(full) == set(BOOKING.fields)


def test_a_schema_that_takes_nothing_has_no_example() -> None:
    assert examples("false") == []
    assert smallest('{"type":"string","pattern":"^(?=a)b"}') is msgspec.UNSET


def test_a_value_that_only_looks_like_a_schema_is_left_alone() -> None:
    schema = {"const": {"format": "date", "type": "string"}}
    assert examples(json.dumps(schema)) == [schema["const"]]
    named = {"type": "object", "required": ["format"], "properties": {"format": {"type": "integer"}}}
    assert examples(json.dumps(named))[0] == {"format": 0}


def test_a_format_that_may_be_null_has_both() -> None:
    found = examples('{"type":["null","string"],"format":"date"}')
    assert None in found
    assert "2024-02-29" in found


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(SchemaError):
        examples('{"type":"nonsense"}')


@pytest.mark.parametrize("seed", range(60))
def test_a_random_schema_that_takes_something_has_examples_and_all_of_them_fit(seed: int) -> None:
    chance = Chance(seed)
    schema, _ = chance.pair()
    validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    with contextlib.suppress(Circular):
        made = made_from(schema)
        assert all(validator.is_valid(one) for one in made)
        assert made or not any(validator.is_valid(chance.value()) for _ in range(200))


class Circular(Exception):
    """A schema that refers to itself, and no value is ever reached in between: few of the random ones do."""


def made_from(schema: object) -> list[object]:
    try:
        return examples(json.dumps(schema), most=6)
    except SchemaError as error:
        if "refers to itself" not in str(error):
            raise
        raise Circular from error

"""Encrypted values in a payload that somebody edits: what is not touched stays to the letter, and nothing is guessed."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.contracts.boxes import Box, boxes_at, kept, numbered
from posthouse.errors import ContractError


def box(of: str, sealed: str) -> Box:
    return Box(1, of, "contact", "text", sealed)


BEFORE = msgspec.json.encode(
    {
        "id": "b1",
        "email": box("g1", "AAAA"),
        "guests": [{"id": "g2", "name": box("g2", "BBBB")}, {"id": "g3", "name": None}],
    }
)


def edited(**fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(numbered(BEFORE)), **fields})


def test_an_editor_sees_a_number_for_each_encrypted_value_and_nothing_of_it() -> None:
    shown = msgspec.json.decode(numbered(BEFORE))
    assert (shown["email"], shown["guests"][0]["name"]) == ("⟨withheld 1⟩", "⟨withheld 2⟩")
    assert b"AAAA" not in numbered(BEFORE)
    assert boxes_at(BEFORE) == ["email", "guests.0.name"]


def test_what_is_not_touched_comes_back_to_the_letter() -> None:
    assert kept(BEFORE, numbered(BEFORE)) == BEFORE
    after = msgspec.json.decode(kept(BEFORE, edited(id="b2")))
    assert after == {**msgspec.json.decode(BEFORE), "id": "b2"}


def test_whoever_hands_the_encrypted_value_itself_back_keeps_it_too() -> None:
    assert kept(BEFORE, BEFORE) == BEFORE


def test_a_new_value_takes_the_place_of_one() -> None:
    after = msgspec.json.decode(kept(BEFORE, edited(email="new@example.org")))
    assert after["email"] == "new@example.org"
    assert after["guests"] == msgspec.json.decode(BEFORE)["guests"]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "⟨withheld 1⟩"},
        {"email": "⟨withheld 2⟩"},
        {"email": "⟨withheld 9⟩"},
        {"email": "⟨withheld 0⟩"},
        {"email": "⟨withheld⟩"},
        {"email": msgspec.to_builtins(box("g1", "CCCC"))},
        {"id": msgspec.to_builtins(box("g1", "AAAA"))},
        {"guests": [{"id": "g3", "name": None}, {"id": "g2", "name": "⟨withheld 2⟩"}]},
    ],
)
def test_what_was_moved_made_up_or_cannot_be_told_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ContractError, match=r"written anew|write a new value"):
        kept(BEFORE, edited(**fields))


def test_a_payload_without_encrypted_values_is_left_alone() -> None:
    odd = b'{"note": "\\u27e8withheld 1\\u27e9", "x": 1.50}'
    assert kept(odd, odd) == odd
    assert numbered(odd) == odd
    assert not boxes_at(b'{"$secret": no json')

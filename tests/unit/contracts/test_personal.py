"""Marks on fields are found in every kind of payload, and change nothing."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import msgspec
import pydantic

from posthouse.contracts import payload_of
from posthouse.contracts.personal import Personal, personal_fields

Mail = Annotated[str, Personal("contact")]


@dataclasses.dataclass
class Guest:
    mail: Mail
    room: str


@dataclasses.dataclass
class Stay:
    guest: Guest
    others: list[Guest]
    by_name: dict[str, Guest] | None
    phone: Annotated[str | None, Personal("contact")] = None


class Folded(msgspec.Struct, rename="camel"):
    first_mail: Mail
    next_one: Folded | None = None


class Model(pydantic.BaseModel):
    mail: Mail = pydantic.Field(alias="eMail")
    guest: Guest


class Plain(msgspec.Struct):
    first_mail: str


class Marked(msgspec.Struct):
    first_mail: Mail


def test_marks_are_found_inside_objects_lists_maps_and_options() -> None:
    assert personal_fields(Stay) == {"guest.mail", "others.*.mail", "by_name.*.mail", "phone"}


def test_names_are_those_that_travel_and_a_class_inside_itself_is_entered_once() -> None:
    assert personal_fields(Folded) == {"firstMail", "nextOne.firstMail"}
    assert personal_fields(Model) == {"eMail", "guest.mail"}


def test_a_class_without_marks_has_none() -> None:
    assert personal_fields(Plain) == frozenset()


def test_a_mark_does_not_change_the_schema() -> None:
    assert payload_of(Marked).schema.hash == payload_of(Plain).schema.hash

"""Sealing: what is personal travels in boxes that open in their own place alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posthouse import Payload, Personal, Service
from posthouse.contracts import event_type_of
from posthouse.contracts.boxes import SEALED
from posthouse.errors import ConfigurationError, ContractError, FrameRefused, RuleBroken
from posthouse.events import Event
from posthouse.redaction import redacted, without_carried
from posthouse.trust.secrets import ERASED, WITHHELD, is_withheld
from posthouse.trust.secrets.fields import problems_of, secret_fields
from posthouse.trust.secrets.sealing import (
    Erased,
    Key,
    boxes_in,
    carried,
    nonces,
    opened,
    refuse_carried,
    sealed,
    subjects_in,
    tokens_in,
    withheld,
)

Email = Annotated[str, Personal("contact")]


class Child(msgspec.Struct, frozen=True):
    id: str
    name: Annotated[str, Personal("identity", of="id")]


class Address(msgspec.Struct, frozen=True, rename="camel"):
    street_name: Annotated[str, Personal("contact")]
    city: str


class Stay(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]
    address: Address
    children: tuple[Child, ...] = ()
    by_room: dict[str, Child] | None = None
    notes: Annotated[list[str] | None, Personal("health")] = None
    price: float = 1.5


STAY = Stay(
    guest_id="g1",
    name="Ada 🦊 “Königin”",
    address=Address("Straße 1", "Bern"),
    children=(Child("c1", "Tim"), Child("c2", "Ann")),
    by_room={"12": Child("c3", "Eva")},
    notes=["gluten", "x" * 50_000],
)


class Keys:
    """A key for everybody who is asked for."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}

    def __call__(self, subject: str) -> Key:
        return self.keys.setdefault(subject, AESGCM(AESGCM.generate_key(256)))


def declared(cls: type, about: str = "guest_id") -> Any:
    return event_type_of(Service("hotel").event("guest.stayed.v1", about=about)(cls))


def event_of(value: object, **fields: Any) -> Event[bytes]:
    known = event_type_of(type(value))
    fields = {"id": "e1", "type": known.name, "source": "/hotel", "time": "", "tenant": "t1", **fields}
    return Event(data=known.payload.encode(value), **fields)


def sealed_by(keys: Callable[[str], Key], event: Event[bytes], cls: type) -> Event[bytes]:
    fields = secret_fields(event_type_of(cls))
    assert fields is not None
    return sealed(event, fields, keys, nonces())


@pytest.fixture
def stayed() -> tuple[Keys, Event[bytes]]:
    declared(Stay)
    keys = Keys()
    return keys, sealed_by(keys, event_of(STAY), Stay)


def test_what_was_sealed_opens_again_whatever_it_is_and_wherever_it_lies(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    for word in ("Königin", "Straße", '"Tim"', '"Ann"', '"Eva"', '"gluten"'):
        assert word.encode() in event_of(STAY).data
        assert word.encode() not in event.data
    assert b'"price":1.5' in event.data
    assert b'"city":"Bern"' in event.data
    assert event_type_of(Stay).payload.decode(opened(event, keys, "*").data) == STAY


def test_each_is_sealed_under_the_key_of_whom_it_is_about(stayed: tuple[Keys, Event[bytes]]) -> None:
    found = {path: (box.of, box.kind) for path, box in boxes_in(stayed[1])}
    assert found == {
        "name": ("g1", "identity"),
        "address.streetName": ("g1", "contact"),
        "children.0.name": ("c1", "identity"),
        "children.1.name": ("c2", "identity"),
        "by_room.12.name": ("c3", "identity"),
        "notes": ("g1", "health"),
    }
    fields = secret_fields(event_type_of(Stay))
    assert fields is not None
    assert subjects_in(event_of(STAY), fields) == {"g1", "c1", "c2", "c3"}


def test_whoever_may_read_some_kinds_sees_placeholders_for_others(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    seen: Stay = event_type_of(Stay).payload.decode(opened(event, keys, {"contact"}).data)
    assert (seen.name, seen.address.street_name, seen.notes) == (WITHHELD, "Straße 1", None)
    assert is_withheld(seen.name)
    assert not is_withheld(seen.address.street_name)
    nothing: Stay = event_type_of(Stay).payload.decode(withheld(event).data)
    assert nothing.address.street_name == WITHHELD


def test_what_is_about_somebody_who_was_erased_is_gone_and_the_rest_stays(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    keys.keys["g1"] = Erased(1.0)
    seen: Stay = event_type_of(Stay).payload.decode(opened(event, keys, "*").data)
    assert (seen.name, seen.notes, seen.children[0].name) == (ERASED, None, "Tim")


def test_nothing_new_is_said_about_somebody_who_was_erased() -> None:
    declared(Stay)
    keys = Keys()
    keys.keys["g1"] = Erased(1.0)
    with pytest.raises(RuleBroken, match="'name' is about 'g1' of tenant 't1', who was erased") as broken:
        sealed_by(keys, event_of(STAY), Stay)
    assert broken.value.rule == "erased"


def test_a_placeholder_that_is_said_again_stays_one(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    keys.keys["g1"] = Erased(1.0)
    seen: Stay = event_type_of(Stay).payload.decode(opened(event, keys, "*").data)
    again = sealed_by(keys, event_of(seen, id="e2"), Stay)
    assert event_type_of(Stay).payload.decode(opened(again, keys, "*").data).name == ERASED


def test_a_saga_carries_secrets_on_that_it_cannot_read(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    held: Stay = event_type_of(Stay).payload.decode(carried(event, keys).data)
    assert held.name.startswith(SEALED)
    said_on = sealed_by(keys, event_of(held, id="e2"), Stay)
    assert b"Ada" not in said_on.data
    assert event_type_of(Stay).payload.decode(opened(said_on, keys, "*").data).name == STAY.name
    keys.keys["g1"] = Erased(1.0)
    later = sealed_by(keys, event_of(held, id="e3"), Stay)
    assert event_type_of(Stay).payload.decode(opened(later, keys, "*").data).name == ERASED


class Message(Payload):
    guest_id: str
    text: Annotated[str, Personal("contact")] = ""
    name: Annotated[str, Personal("identity")] = ""
    line: str = ""


def test_what_a_saga_carries_becomes_the_same_kind_about_the_same_person_and_nothing_else(
    stayed: tuple[Keys, Event[bytes]],
) -> None:
    keys, event = stayed
    event_type_of(Service("hotel").event("message.left.v1", about="guest_id")(Message))
    token = event_type_of(Stay).payload.decode(carried(event, keys).data).name

    def read(message: Message) -> Message:
        event = sealed_by(keys, event_of(message, id="e2"), Message)
        found: Message = event_type_of(Message).payload.decode(opened(event, keys, "*").data)
        return found

    assert read(Message(guest_id="g1", name=token)).name == STAY.name
    assert read(Message(guest_id="g1", text=token)).text == ERASED, "another kind is read by others"
    assert read(Message(guest_id="g2", name=token)).name == ERASED, "another person is erased at another time"


def test_what_a_saga_carries_is_said_in_no_open_field_and_not_as_a_part_of_one(
    stayed: tuple[Keys, Event[bytes]],
) -> None:
    keys, event = stayed
    known: Any = event_type_of(Service("hotel").event("message.left.v1", about="guest_id")(Message))
    token = event_type_of(Stay).payload.decode(carried(event, keys).data).name
    fields = secret_fields(known)
    refuse_carried(event_of(Message(guest_id="g1", name=token)), fields)
    refuse_carried(event_of(Message(guest_id="g1", line="⟨sealed letter⟩ from ⟨sealed")), fields)
    for wrong in (
        Message(guest_id="g1", line=token),
        Message(guest_id="g1", name=f"Dear {token}"),
        Message(guest_id="g1", line=json.dumps({"name": token})),
    ):
        with pytest.raises(RuleBroken, match=r"carried.*not Personal"):
            refuse_carried(event_of(wrong), fields)
    with pytest.raises(RuleBroken, match="carried"):
        refuse_carried(event_of(Message(guest_id="g1", name=token)), None)


def test_what_a_saga_carries_is_shown_without_what_would_open_it(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    token = event_type_of(Stay).payload.decode(carried(event, keys).data).name
    for text in (f"a {token} b", json.dumps({"name": token}), token[:60]):
        shown = redacted(text)
        assert token[8:50] not in shown
        assert is_withheld(shown[shown.index("⟨") :])
        assert not list(tokens_in(shown))
    assert without_carried(token) == without_carried(token) != without_carried(token[:60])


def test_a_saga_cannot_make_a_secret_up(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    held: Stay = event_type_of(Stay).payload.decode(carried(event, keys).data)
    document = msgspec.json.decode(base64.b64decode(held.name[len(SEALED) : -1]))
    document[0] = "e5"
    forged = f"{SEALED}{base64.b64encode(msgspec.json.encode(document)).decode()}⟩"
    said = sealed_by(keys, event_of(msgspec.structs.replace(held, name=forged), id="e9"), Stay)
    assert event_type_of(Stay).payload.decode(opened(said, keys, "*").data).name == ERASED


def test_whoever_types_a_ciphertext_that_he_saw_is_not_told_what_it_says(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    box = msgspec.json.decode(event.data)["name"]
    for proof in ([], [base64.b64encode(b"p" * 28).decode()], ["p"]):
        token = base64.b64encode(msgspec.json.encode([event.id, event.type, "name", box, *proof])).decode()
        typed = Stay(guest_id="g2", name=f"{SEALED}{token}⟩", address=STAY.address)
        said = sealed_by(keys, event_of(typed, id="e9"), Stay)
        assert event_type_of(Stay).payload.decode(opened(said, keys, "*").data).name == ERASED


def test_a_saga_is_not_given_what_was_moved(stayed: tuple[Keys, Event[bytes]]) -> None:
    keys, event = stayed
    with pytest.raises(FrameRefused, match="unreadable"):
        carried(msgspec.structs.replace(event, id="e2"), keys)


def swapped(event: Event[bytes], change: Callable[[dict[str, Any]], None]) -> Event[bytes]:
    document = msgspec.json.decode(event.data)
    change(document)
    return event.with_data(msgspec.json.encode(document))


def _other_field(document: dict[str, Any]) -> None:
    document["name"], document["address"]["streetName"] = document["address"]["streetName"], document["name"]


def _other_item(document: dict[str, Any]) -> None:
    first, second = document["children"]
    first["name"], second["name"] = second["name"], first["name"]


def _other_person(document: dict[str, Any]) -> None:
    document["name"]["of"] = "c1"


def _other_kind(document: dict[str, Any]) -> None:
    document["name"]["kind"] = "contact"


def _truncated(document: dict[str, Any]) -> None:
    document["name"]["box"] = document["name"]["box"][:-8]


def _re_encoded(document: dict[str, Any]) -> None:
    raw = base64.b64decode(document["name"]["box"])
    document["name"]["box"] = base64.b64encode(raw + b"\0").decode()


def _respelled(document: dict[str, Any]) -> None:
    document["name"]["box"] = f" {document['name']['box']}\n"


def _emptied(document: dict[str, Any]) -> None:
    document["name"]["box"] = ""


@pytest.mark.parametrize(
    "change",
    [_other_field, _other_item, _other_person, _other_kind, _truncated, _re_encoded, _respelled, _emptied],
)
def test_a_box_that_was_moved_or_changed_is_refused(
    stayed: tuple[Keys, Event[bytes]], change: Callable[[dict[str, Any]], None]
) -> None:
    keys, event = stayed
    with pytest.raises(FrameRefused, match="unreadable"):
        opened(swapped(event, change), keys, "*")


@pytest.mark.parametrize("field", [{"id": "e2"}, {"type": "hotel.guest.left.v1"}, {"tenant": "t2"}])
def test_a_box_in_another_event_type_or_tenant_is_refused(
    stayed: tuple[Keys, Event[bytes]], field: dict[str, str]
) -> None:
    keys, event = stayed
    with pytest.raises(FrameRefused, match="unreadable"):
        opened(msgspec.structs.replace(event, **field), keys, "*")


def test_a_timers_box_opens_under_the_id_that_it_gets_later_and_no_other_event_passes_for_one() -> None:
    declared(Stay)
    keys = Keys()
    timed = sealed_by(keys, event_of(STAY, extensions={"firstid": "e1"}), Stay)
    fired = msgspec.structs.replace(timed, id="e99")
    assert event_type_of(Stay).payload.decode(opened(fired, keys, "*").data) == STAY
    plain = sealed_by(keys, event_of(STAY), Stay)
    posing = msgspec.structs.replace(plain, id="e99", extensions={"firstid": "e1"})
    with pytest.raises(FrameRefused):
        opened(posing, keys, "*")


def test_a_fact_that_does_not_say_whom_it_is_about_is_refused() -> None:
    declared(Stay)
    with pytest.raises(
        ContractError, match=r"'name' is personal, and 'guest_id', which says whom it is about, is empty"
    ):
        sealed_by(Keys(), event_of(msgspec.structs.replace(STAY, guest_id="")), Stay)


def test_dataclasses_and_pydantic_models_are_sealed_under_the_names_that_they_travel_by() -> None:
    @dataclass(frozen=True)
    class Plain:
        guest_id: int
        email: Email

    class Model(pydantic.BaseModel):
        guest_id: str = pydantic.Field(alias="guestId")
        email: Annotated[str, Personal("contact", of="guest_id")] = pydantic.Field(alias="eMail")

    keys = Keys()
    for value, path in ((Plain(7, "ada@x.org"), "email"), (Model(guestId="7", eMail="ada@x.org"), "eMail")):
        about = "guest_id" if isinstance(value, Plain) else ""
        known = declared(type(value), about)
        assert list(problems_of(known)) == []
        event = sealed_by(keys, event_of(value), type(value))
        assert [(where, box.of) for where, box in boxes_in(event)] == [(path, "7")]
        assert known.payload.decode(opened(event, keys, "*").data) == value


# What cannot be declared, and what cannot be kept secret.


def test_whom_it_is_about_is_checked_where_it_is_declared() -> None:
    class Registered(Payload):
        guest_id: str
        email: Annotated[str, Personal("contact")]

    class Odd(Payload):
        guest_id: str
        email: Annotated[str, Personal("contact", of="guestid")]

    hotel = Service("hotel")
    with pytest.raises(
        ConfigurationError, match=r"about='guest': there is no field 'guest'. Did you mean 'guest_id'\?"
    ):
        hotel.event("guest.registered.v1", about="guest")(Registered)
    with pytest.raises(ConfigurationError, match="about='email' is personal itself"):
        hotel.event("guest.registered.v1", about="email")(Registered)
    with pytest.raises(
        ConfigurationError, match=r"'email' is of='guestid', and Odd has no such field. Did you mean 'guest_id'\?"
    ):
        hotel.event("guest.moved.v1")(Odd)


class Strict(Payload):
    guest_id: str
    born: Annotated[int, Personal("identity")]
    code: Annotated[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], Personal("identity")]


class Nobodys(Payload):
    email: Annotated[str, Personal("contact")]


class Row(msgspec.Struct, frozen=True, array_like=True):
    name: Annotated[str, Personal("identity")]


class Rows(Payload):
    guest_id: str
    rows: list[Row]


class Tree(msgspec.Struct, frozen=True):
    name: Annotated[str, Personal("identity")]
    below: list["Tree"] = []  # noqa: UP037  # a class that holds itself


class Trees(Payload):
    guest_id: str
    tree: Tree


@pytest.mark.parametrize(
    ("cls", "about", "words"),
    [
        (Strict, "guest_id", ["'born' is personal and no plain text", "'code' is personal and no plain text"]),
        (Nobodys, "", ["'email' is personal, and nothing says whom it is about"]),
        (Rows, "guest_id", ["Row travels as an array"]),
        (Trees, "guest_id", ["Tree holds itself"]),
    ],
)
def test_fields_that_cannot_be_kept_secret_are_named(cls: type, about: str, words: list[str]) -> None:
    found = list(problems_of(declared(cls, about)))
    assert len(found) == len(words)
    assert all(word in problem for word, problem in zip(words, found, strict=True)), found

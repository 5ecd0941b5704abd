"""Who sees what of a payload, and that the look is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from posthouse import App, Payload, Personal, Service
from posthouse.console.access.who import Who
from posthouse.console.asking import Refusal
from posthouse.console.showing import (
    LONGEST,
    NO_RIGHT,
    NOT_JSON,
    UNKNOWN_TYPE,
    Shown,
    looked_at,
    masked,
    shown_headers,
    shown_payload,
    shown_text,
    viewed,
)
from posthouse.events import Event
from posthouse.store.actions import Action

SEES = Who(name="ada", roles=frozenset(("reader",)), payloads=True)
BLIND = Who(name="bob", roles=frozenset(("admin",)))


class Guest(Payload):
    email: Annotated[str, Personal("contact")]
    room: int


class Booked(Payload):
    id: str
    total: int
    guests: list[Guest]
    note: Annotated[str, Personal("identity")] = ""


class Closed(Payload):
    id: str


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    desk = Service("desk", namespace="hotel")
    desk.event("booking.made.v1", key="id")(Booked)
    desk.event("booking.closed.v1", key="id")(Closed)
    app = App(desk, store=f"sqlite:///{tmp_path / 'desk.db'}", broker="memory://")
    await app.open()
    yield app
    await app.aclose()


MADE = "hotel.desk.booking.made.v1"
BODY = b'{"id":"b1", "total": 9007199254740993,"guests":[{"email":"<script>a@b.c</script>","room":1.50}],"note":"Ada"}'


def test_personal_fields_are_hidden_and_all_other_text_is_as_it_was_written(app: App) -> None:
    shown = shown_payload(app, SEES, MADE, BODY)
    assert shown.text == '{"id":"b1","total":9007199254740993,"guests":[{"email":"…","room":1.50}],"note":"…"}'
    assert (shown.masked, shown.form, shown.unmaskable, shown.size) == (
        ["guests.*.email", "note"],
        "json",
        True,
        len(BODY),
    )


async def unmasked(app: App, body: bytes = BODY, who: Who = SEES) -> Shown:
    fact = Event(id="e1", type=MADE, source="/hotel/desk", data=body, time="2026-11-16T20:00:00Z", tenant="t1")
    return await looked_at(app, who, fact, Action(verb=""), unmask=True, why="ticket 7")


async def test_unmasked_it_is_what_is_stored(app: App) -> None:
    assert (await unmasked(app)).text == BODY.decode()


async def test_whoever_unmasks_says_why(app: App) -> None:
    with pytest.raises(Refusal, match="Say why") as refused:
        await looked_at(app, SEES, BODY, Action(verb=""), unmask=True, why=" ")
    assert refused.value.status == 400
    await unmasked(app)
    assert [(one.verb, one.why) for one in await app.actions.find()] == [("console unmask", "ticket 7")]


def test_a_payload_without_personal_fields_is_shown_to_the_letter(app: App) -> None:
    body = b'{ "id" : "b1", "id": "b2", "x": 1e2 }'
    assert shown_payload(app, SEES, "hotel.desk.booking.closed.v1", body).text == body.decode()


def test_a_role_is_no_right_to_see_payloads(app: App) -> None:
    shown = shown_payload(app, BLIND, MADE, BODY)
    assert (shown.text, shown.withheld) == (None, NO_RIGHT)
    assert shown_text(BLIND, "ValueError: a@b.c") is None
    assert shown_headers(BLIND, {"ce-id": "1"}) is None


def test_what_nobody_knows_here_is_hidden_as_a_whole(app: App) -> None:
    shown = shown_payload(app, SEES, "hotel.desk.unheard.v1", BODY)
    assert (shown.text, shown.withheld, shown.unmaskable) == (None, UNKNOWN_TYPE, True)


async def test_bytes_with_personal_fields_that_are_no_json_are_hidden_as_a_whole(app: App) -> None:
    shown = shown_payload(app, SEES, MADE, b'{"note": "Ada')
    assert (shown.text, shown.withheld) == (None, NOT_JSON)
    assert (await unmasked(app, b"\xff<b>\x00")).text == "\\xff<b>\x00"


def test_a_field_that_is_said_twice_hides_both() -> None:
    assert masked(b'{"note": "Ada", "note": "Bob"}', ["note"]) == b'{"note":"\xe2\x80\xa6"}'


def test_a_field_that_holds_more_than_it_should_is_hidden_with_all_of_it() -> None:
    assert masked(b'{"note": {"deep": ["Ada"]}}', ["note"]) == b'{"note":"\xe2\x80\xa6"}'


def test_what_stands_where_a_person_may_be_is_hidden_whatever_its_shape() -> None:
    assert masked(b'{"guests": {"email": "Ada"}}', ["guests.*.email"]) == b'{"guests":{"email":"\xe2\x80\xa6"}}'
    assert masked(b'{"guests": null}', ["guests.*.email"]) == b'{"guests":null}'


def test_a_long_payload_is_cut_and_says_so(app: App) -> None:
    shown = shown_payload(app, SEES, "hotel.desk.booking.closed.v1", b'"' + b"x" * LONGEST + b'"')
    assert shown.cut
    assert len(shown.text or "") == LONGEST


async def test_every_look_is_kept_with_who_and_at_what(app: App) -> None:
    await viewed(app, SEES, Action(verb="", event_id="e1", target="held event 7"))
    await viewed(app, SEES, Action(verb="", event_id="e1", target="held event 7"), unmask=True)
    kept = [(one.verb, one.by, one.target, one.event_id, one.service) for one in await app.actions.find()]
    assert sorted(kept) == [
        ("console unmask", "ada (console)", "held event 7", "e1", "desk"),
        ("console view", "ada (console)", "held event 7", "e1", "desk"),
    ]


async def test_who_may_not_see_cannot_unmask_and_leaves_no_trace_of_having_seen(app: App) -> None:
    await viewed(app, BLIND, Action(verb=""))
    with pytest.raises(Refusal, match="may not see payloads"):
        await unmasked(app, who=BLIND)
    assert await app.actions.find() == []


async def test_what_is_shown_is_written_as_json_that_no_page_can_take_for_its_own(app: App) -> None:
    said = msgspec.json.encode(await unmasked(app))
    assert msgspec.json.decode(said)["text"] == BODY.decode()

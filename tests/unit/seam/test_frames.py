from __future__ import annotations

import msgspec
import pytest

from posthouse.events import BINARY, STRUCTURED, Codec, Event, decode_any
from posthouse.seam.frames import fit_for_broker, frame_of
from posthouse.store import OutboxRow
from posthouse.stores.rows import sound

ROW = OutboxRow(topic="legacy", tenant="t1", event_id="e1", body=b"", numbered=False, id=7)


def by_hand(body: bytes, headers: dict[str, str]) -> OutboxRow:
    return msgspec.structs.replace(ROW, body=body, headers=headers)


@pytest.mark.parametrize("body", [b"", b"plain words", b"{}", b'{"a":1}', b"\x00\xff"])
@pytest.mark.parametrize("headers", [{}, {"a": "b"}, {"content-type": "text/plain"}])
def test_a_row_that_somebody_wrote_by_hand_and_that_is_no_event_goes_out_as_it_is(
    body: bytes, headers: dict[str, str]
) -> None:
    encoded = STRUCTURED.encode(Event(id="e2", type="a.v1", source="/s", time="", data=b"{}"))
    event = msgspec.structs.replace(ROW, headers=encoded.headers, body=encoded.body)
    frames, unfit = fit_for_broker([event, by_hand(body, headers), event])
    assert not unfit
    assert (frames[1].headers, frames[1].body) == (headers, body)
    assert [decode_any(one.headers, one.body).metadata.outbox_id for one in (frames[0], frames[2])] == ["7", "7"]


@pytest.mark.parametrize("codec", [STRUCTURED, BINARY], ids=lambda codec: str(codec.name))
def test_an_event_without_a_number_says_the_id_of_its_row(codec: Codec) -> None:
    encoded = codec.encode(Event(id="e2", type="a.v1", source="/s", time="", data=b"{}"))
    frame = frame_of(msgspec.structs.replace(ROW, headers=encoded.headers, body=encoded.body))
    assert decode_any(frame.headers, frame.body).metadata.outbox_id == "7"


def test_a_number_that_cannot_be_said_is_never_left_out() -> None:
    numbered = msgspec.structs.replace(ROW, body=b"plain words", key="k", sequence=3)
    unnumbered = by_hand(b"plain words", {})
    frames, unfit = fit_for_broker([unnumbered, numbered, unnumbered])
    assert (len(frames), list(unfit)) == (2, [1])


@pytest.mark.parametrize(("headers", "body"), [("{", b"{}"), ("{}", "text")])
def test_a_row_that_was_damaged_where_it_lies_does_not_pass_for_one_that_is_no_event(
    headers: str, body: bytes | str
) -> None:
    known, raw = sound(headers, body)
    _, unfit = fit_for_broker([msgspec.structs.replace(ROW, headers=known, body=raw)])
    assert "damaged: " in unfit[0].reason

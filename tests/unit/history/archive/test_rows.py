"""What travelled comes out of a file as it went in, whatever it is; and nothing that travels can stop the archive."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker import Delivery, Frame
from posthouse.events import BINARY, STRUCTURED, Event
from posthouse.history.archive.files import encoded, events_of, name_of, opened
from posthouse.history.archive.places import open_place
from posthouse.history.archive.reading import Archived
from posthouse.history.archive.rows import UNREAD, row_of
from tests.kit.archives import fact


def through(tmp_path: Path, *deliveries: Delivery) -> list[Archived]:
    """Into a file and out of it again."""
    place = open_place(f"file://{tmp_path}")
    rows = [row_of(delivery) for delivery in deliveries]
    file, data = encoded("p", name_of("p", rows[0].retention, rows[0].topic, rows[0].day), rows)
    assert place.put_new(file.name, data)
    with opened(place, file) as found:
        return [event for batch in found.iter_batches() for event in events_of(batch)]


def delivery(frame: Frame, position: int | str = 7, stored_at: float = 1_800_000_000.25, **more: Any) -> Delivery:
    return Delivery(frame=frame, position=position, stored_at=stored_at, **more)


@pytest.mark.parametrize("codec", [STRUCTURED, BINARY], ids=["structured", "binary"])
@pytest.mark.parametrize("key", ["k1", None, "Кабул 7"])
def test_a_frame_comes_out_byte_for_byte(tmp_path: Path, codec: Any, key: str | None) -> None:
    event = Event(
        id="e1", type="shop.order.placed.v3", source="/shop", data='{"ключ":"值"}'.encode(), time="2027-01-15T08:00:00Z",
        tenant="t1", key=key, sequence=None if key is None else 4, lineage=2,
    )  # fmt: skip
    written = codec.encode(event)
    frame = Frame(topic="shop.order", id="e1", key=event.ordering_key, headers=dict(written.headers), body=written.body)
    (found,) = through(tmp_path, delivery(frame))
    assert found.frame == frame
    assert (found.position, found.stored_at, found.type) == (7, 1_800_000_000.25, "shop.order.placed.v3")
    assert (found.tenant, found.key, found.sequence, found.lineage) == ("t1", key, event.sequence, 2)


@pytest.mark.parametrize("position", [0, 2**63 - 1, 2**63, 10**30, "0:0", "0:5", "3:99", "a-b", "07:1", "1:2:3", ""])
def test_a_position_comes_out_as_the_broker_says_it(tmp_path: Path, position: int | str) -> None:
    (found,) = through(tmp_path, delivery(fact(1), position))
    assert found.position == (position if isinstance(position, str) or position < 2**63 else str(position))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(topic="t", id="x", body=b"\xff\x00garbage", key="k"),
        Frame(topic="t", id="x", body=b"{}", key=None),
        Frame(topic="t", id="x", body=b"", headers={"content-type": "application/cloudevents+json"}),
        Frame(topic="t", id="a\x00b", body=b"\xff", key=""),
        Frame(topic="t", id="half \ud800", body=b"x", key="\ud800", headers={"h": "\udfff", "n": "a\x00b"}),
    ],
)
def test_what_cannot_be_read_is_kept_all_the_same(tmp_path: Path, frame: Frame) -> None:
    (found,) = through(tmp_path, delivery(frame))
    assert (found.retention, found.type, found.frame.body) == (UNREAD, "", frame.body)
    assert found.frame == frame


def test_a_header_that_is_no_text_stops_nothing(tmp_path: Path) -> None:
    plain = fact(1)
    frame = Frame(
        topic=plain.topic, id=plain.id, key=plain.key, body=plain.body, headers={**plain.headers, "x": "\udc80"}
    )
    (found,) = through(tmp_path, delivery(frame))
    assert (found.frame.body, found.frame.headers["x"]) == (plain.body, "\udc80")


@pytest.mark.parametrize("key", ["", None, "a\x00", "\ud800"])
def test_a_key_that_its_event_does_not_give_comes_out_as_it_was(tmp_path: Path, key: str | None) -> None:
    plain = fact(1)
    frame = Frame(topic=plain.topic, id="a\x00", key=key, body=plain.body, headers={**plain.headers, "x": "ü\x00"})
    (found,) = through(tmp_path, delivery(frame))
    assert found.frame == frame


def test_ids_that_are_written_alike_are_those_of_different_frames() -> None:
    frames = [Frame(topic="t", id=id, body=b"x") for id in ("a\x00b", "a\\x00b")]
    assert len({row_of(delivery(frame)).digest for frame in frames}) == 2


@pytest.mark.parametrize("stored_at", [math.nan, math.inf, -math.inf, -1e18, 1e18, -0.5])
def test_a_time_that_is_none_stops_nothing(tmp_path: Path, stored_at: float) -> None:
    (found,) = through(tmp_path, delivery(fact(1), stored_at=stored_at))
    assert 0 <= found.stored_at < 253_402_300_800


def test_a_defect_is_kept_with_the_frame(tmp_path: Path) -> None:
    row = row_of(delivery(fact(1), defect="no frame at all"))
    assert (row.defect, row.retention) == ("no frame at all", UNREAD)


def test_the_same_id_of_another_tenant_or_around_another_body_is_another_event() -> None:
    def digest(tenant: str, data: bytes, topic: str = "shop.order") -> bytes:
        event = Event(id="e", type="shop.order.placed.v1", source="/s", data=data, time="", tenant=tenant)
        written = STRUCTURED.encode(event)
        return row_of(delivery(Frame(topic=topic, id="e", headers=written.headers, body=written.body))).digest

    first = digest("a", b"1")
    assert first == digest("a", b"1")
    assert len({first, digest("b", b"1"), digest("a", b"2"), digest("a", b"1", "shop.orde")}) == 4

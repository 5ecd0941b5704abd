"""A frame on its way in, step by step."""

from __future__ import annotations

import pytest

from posthouse import Payload, Service
from posthouse.broker import Delivery, Frame
from posthouse.clock import SystemClock
from posthouse.contracts import EventType, event_type_of
from posthouse.contracts.versions import cast_of
from posthouse.errors import ContractError, DecodeError, FrameRefused
from posthouse.events import STRUCTURED, Event, Producer
from posthouse.seam import EnvelopeBuilder, EventContext, SchemaGuard, Seam
from posthouse.seam.frames import frame_of
from posthouse.seam.inward import open_data, open_frame, open_payload

hotel = Service("hotel")


@hotel.event("stay.booked.v1", key="stay")
class StayBooked1(Payload):
    stay: str


@hotel.event("stay.booked.v2", key="stay")
class StayBooked2(Payload):
    stay: str
    nights: int


def upcast(old: StayBooked1) -> StayBooked2:
    return StayBooked2(stay=old.stay, nights=1)


@pytest.fixture
def delivery() -> Delivery:
    builder = EnvelopeBuilder(Producer(service="hotel"), "/hotel", STRUCTURED, SystemClock(), 100_000)
    frame = frame_of(builder.build_one(StayBooked1(stay="s1"), EventContext(tenant="t1")))
    return Delivery(frame=frame, position=0, stored_at=1.0)


def outcomes(seam: Seam) -> dict[str, int]:
    return {figure.outcome: figure.count for figure in seam.timing.figures() if figure.crossing == "inward"}


def test_a_frame_is_read_as_its_producer_wrote_it(delivery: Delivery) -> None:
    seam = Seam()
    event = open_frame(seam, "desk", delivery, 10_000)
    assert (event.type, event.tenant, event.data) == ("hotel.stay.booked.v1", "t1", b'{"stay":"s1"}')
    assert outcomes(seam) == {"ok": 1}


def test_a_frame_above_the_limit_is_neither_verified_nor_read(delivery: Delivery) -> None:
    verified: list[Frame] = []
    seam = Seam(verify=verified.append)
    with pytest.raises(DecodeError, match="too_large"):
        open_frame(seam, "desk", delivery, len(delivery.frame.body) - 1)
    assert verified == []
    assert outcomes(seam) == {"DecodeError": 1}


def test_a_frame_is_verified_before_it_is_read(delivery: Delivery) -> None:
    def verify(frame: Frame) -> None:
        raise FrameRefused("nobody signed it")

    forged = Delivery(frame=Frame(topic="t", id="1", body=b"not read"), position=0, stored_at=1.0)
    seam = Seam(verify=verify)
    with pytest.raises(FrameRefused):
        open_frame(seam, "desk", forged, 10_000)
    assert outcomes(seam) == {"FrameRefused": 1}


def test_what_the_broker_could_not_make_a_frame_of_is_unreadable(delivery: Delivery) -> None:
    broken = Delivery(frame=delivery.frame, position=0, stored_at=1.0, defect="its record is cut off")
    with pytest.raises(DecodeError, match="cut off"):
        open_frame(Seam(), "desk", broken, 10_000)


async def test_data_is_fetched_then_decrypted(delivery: Delivery) -> None:
    async def fetch(event: Event[bytes]) -> Event[bytes]:
        return event.with_data(b"fetched " + event.data)

    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        return event.with_data(b"decrypted " + event.data)

    event = open_frame(Seam(), "desk", delivery, 10_000)
    opened = await open_data(Seam(fetch=fetch, decrypt=decrypt), event)
    assert opened.data == b'decrypted fetched {"stay":"s1"}'
    assert await open_data(Seam(), event) is event


def test_a_payload_is_decoded_and_lifted_to_the_version_that_is_wanted(delivery: Delivery) -> None:
    event = open_frame(Seam(), "desk", delivery, 10_000)
    old: EventType[object] = event_type_of(StayBooked1)
    casts = [cast_of("upcast", StayBooked1, StayBooked2, upcast)]
    assert open_payload(SchemaGuard(), old, (), event).data == StayBooked1(stay="s1")
    assert open_payload(SchemaGuard(), old, casts, event).data == StayBooked2(stay="s1", nights=1)


def test_a_payload_that_contradicts_its_schema_is_refused_before_it_is_decoded(delivery: Delivery) -> None:
    event = open_frame(Seam(), "desk", delivery, 10_000)
    with pytest.raises(ContractError, match="mixed them up"):
        open_payload(SchemaGuard(), event_type_of(StayBooked2), (), event.with_data(b"not decoded"))

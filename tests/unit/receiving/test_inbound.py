"""Decode: what a delivery and a held event are, whatever is wrong with them."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from posthouse import Event
from posthouse.broker import Delivery, Frame
from posthouse.errors import FrameRefused
from posthouse.events import PLATFORM
from posthouse.receiving.inbound import Decoder, under_digest
from posthouse.seam import Seam
from tests.unit.receiving.conftest import TOPIC, Bench, MeterRead, handled_by


async def ignore(event: Event[object]) -> None:
    """Handles anything."""


@pytest.fixture
def decoder(bench: Bench) -> Decoder:
    return bench.executor(handled_by(ignore)).decoder


def test_a_delivery_is_known_by_its_key_its_number_and_its_digest(bench: Bench, decoder: Decoder) -> None:
    inbound = decoder.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 3))
    entry = inbound.entry
    assert (entry.topic, entry.tenant, entry.key, entry.sequence, len(entry.digest)) == (TOPIC, "t1", "m1", 3, 16)
    assert inbound.event is not None
    assert inbound.handler is decoder.handlers[inbound.event.type]
    assert (inbound.defect, inbound.redelivered, inbound.held) == ("", False, None)


def test_numbers_do_not_count_where_a_topic_has_no_order(bench: Bench, decoder: Decoder) -> None:
    loose = dataclasses.replace(decoder, ordered={TOPIC: False})
    assert loose.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 3)).entry.sequence is None


def test_a_producer_may_make_its_event_older_than_it_is_and_never_younger(bench: Bench, decoder: Decoder) -> None:
    delivery = bench.delivery(MeterRead(meter="m1", value=7), 1)
    for stored_at, time in (
        (bench.clock.now() - 50, bench.clock.now() - 50),
        (bench.clock.now() + 50, bench.clock.now()),
    ):
        entry = decoder.from_delivery(msgspec.structs.replace(delivery, stored_at=stored_at)).entry
        assert entry.time == pytest.approx(time, abs=0.01)
        assert entry.said == pytest.approx(bench.clock.now(), abs=0.01)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[1, 2]"])
def test_bytes_that_cannot_be_read_go_on_as_such_and_belong_to_nobody(decoder: Decoder, body: bytes) -> None:
    delivery = Delivery(frame=Frame(topic=TOPIC, id="f1", body=body), position=0, stored_at=5.0)
    inbound = decoder.from_delivery(delivery)
    assert inbound.defect.startswith("unreadable: ")
    assert (inbound.event, inbound.handler, inbound.body) == (None, None, body)
    assert (inbound.entry.tenant, inbound.entry.event_id, inbound.entry.sequence) == (PLATFORM, "f1", None)


def test_a_body_above_the_limit_is_not_looked_at(bench: Bench, decoder: Decoder) -> None:
    delivery = bench.delivery(MeterRead(meter="m" * 1_000, value=7), 1)
    size = len(delivery.frame.body)
    assert not dataclasses.replace(decoder, limit=size).from_delivery(delivery).defect
    refused = dataclasses.replace(decoder, limit=size - 1).from_delivery(delivery)
    assert refused.defect.startswith("unreadable: too_large")


def test_a_frame_that_the_seam_refuses_goes_on_with_that_reason(bench: Bench) -> None:
    def verify(frame: Frame) -> None:
        raise FrameRefused(f"nobody signed {frame.topic}")

    decoder = bench.executor(handled_by(ignore), seam=Seam(verify=verify)).decoder
    inbound = decoder.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 1))
    assert inbound.defect == f"nobody signed {TOPIC}"
    assert inbound.entry.sequence is None, "a forger takes nobody's number"


def test_a_frame_that_was_refused_is_verified_again_when_it_is_retried(bench: Bench) -> None:
    def verify(frame: Frame) -> None:
        if frame.topic in strangers:
            raise FrameRefused(f"nobody signed {frame.topic}")

    strangers = [TOPIC]
    decoder = bench.executor(handled_by(ignore), seam=Seam(verify=verify)).decoder
    delivery = bench.delivery(MeterRead(meter="m1", value=7), 1)
    held = decoder.from_delivery(delivery).to_held("books", "quarantined", "refused")
    assert decoder.from_held(held).defect == f"nobody signed {TOPIC}"
    strangers.clear()
    assert not decoder.from_held(held).defect
    let_in = decoder.from_delivery(delivery).to_held("books", "retrying", "failed")
    strangers.append(TOPIC)
    assert not decoder.from_held(let_in).defect, "it was verified when it came"


@pytest.mark.parametrize("id", ["", "x" * 5_000, "\ud800" * 900])
def test_a_frame_whose_id_no_store_takes_is_known_by_its_digest(decoder: Decoder, id: str) -> None:
    inbound = decoder.from_delivery(Delivery(frame=Frame(topic=TOPIC, id=id, body=b"?"), position=0, stored_at=5.0))
    assert inbound.entry.event_id == inbound.entry.digest.hex()


def test_a_held_event_is_what_it_was_when_it_came(bench: Bench, decoder: Decoder) -> None:
    came = decoder.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 3))
    held = came.to_held("books", "retrying", "broken", attempts=2)
    again = decoder.from_held(held)
    assert again.held is held
    assert (again.entry, again.event, again.handler) == (came.entry, came.event, came.handler)


def test_a_held_event_that_cannot_be_read_says_why(bench: Bench, decoder: Decoder) -> None:
    came = decoder.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 3))
    broken = msgspec.structs.replace(came.to_held("books", "retrying", ""), body=b"{", headers={})
    inbound = decoder.from_held(broken)
    assert inbound.event is None
    assert inbound.defect


def test_what_no_store_takes_under_its_own_name_stands_alone_under_its_digest(bench: Bench, decoder: Decoder) -> None:
    came = decoder.from_delivery(bench.delivery(MeterRead(meter="m1", value=7), 3))
    nameless = under_digest(came)
    assert (nameless.entry.event_id, nameless.entry.tenant) == (came.entry.digest.hex(), PLATFORM)
    assert (nameless.entry.sequence, nameless.handler, nameless.body) == (None, None, came.body)

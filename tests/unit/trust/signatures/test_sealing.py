"""Attacks on a signed fact, in every format: each is refused as forged, and what was signed comes through as it was said."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posthouse.broker import Delivery, Frame
from posthouse.clock import ManualClock
from posthouse.errors import DecodeError, EventError, FrameRefused
from posthouse.events import CODECS, Actor, Codec, Event, Metadata, Producer
from posthouse.events.envelope import Scalar
from posthouse.seam import Seam
from posthouse.seam.inward import open_frame
from posthouse.seam.seals import Arrival, Place
from posthouse.store.outbox import Number
from posthouse.trust.signatures.drafts import FactDraft
from posthouse.trust.signatures.keys import read_keys
from posthouse.trust.signatures.material import KIND, pae
from tests.kit.signing import Keys, numbered

TOPIC = "shop.order"
AT = 1_800_000_000.0
CLOCK = ManualClock(AT)
Replace = Callable[[bytes], bytes]

FULL = Event(
    id="01a1f047-b00c-74d6-95ec-931fd02cd1a0", type="shop.order.placed.v1", source="/shop", data=b'{"order_id":"a","n":1}',
    time="2026-11-18T20:09:52.396355Z", tenant="t1", key="a", correlation="c1", causation="e0",
    actor=Actor(kind="user", id="u1"), producer=Producer(service="shop", instance="h-1", commit="abc", region="eu"),
    schema="schemas://shop/order/placed/v1#sha256-89", idempotency_key="i1",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate="a=b",
    metadata=Metadata(retention="cold", residency="eu", offline_replay=True, ai_provenance={"model": "m"}),
    extensions={"dualof": "x1", "flag": True, "count": -3},
)  # fmt: skip
PLAIN = Event(id="e2", type="shop.order.placed.v1", source="/shop", data=b"", time="2026-11-18T20:09:52Z", tenant="t1")
BINARY_DATA = msgspec.structs.replace(FULL, data=b"\x00\xff\xf0", content_type="application/octet-stream")
EVENTS = [FULL, PLAIN, BINARY_DATA]


@pytest.fixture(params=["structured", "binary"])
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]


def true(event: Event[bytes] = FULL, **fields: Any) -> Event[bytes]:
    """A fact as its readers see it: with what the relay has stamped."""
    metadata = msgspec.structs.replace(event.metadata, outbox_id="42")
    return msgspec.structs.replace(event, **{"sequence": 7, "lineage": 3, "metadata": metadata, **fields})


class Shop:
    """A producer with a key, and readers that require signatures."""

    def __init__(self, folder: Path, codec: Codec) -> None:
        self.keys = Keys(folder)
        self.keys.make("shop-1", topics=("shop.*",), tenants=("t1", "t2"))
        self.keys.make("bank-1", source="/bank")
        self.codec = codec

    def seam(self, *ids: str, **modes: Any) -> Seam:
        return self.keys.signing(*ids, **modes).applied(Seam(), CLOCK, "shop")

    def frame(
        self, event: Event[bytes] = FULL, key: str = "shop-1", topic: str = TOPIC, number: int | None = 7
    ) -> Frame:
        """As the broker gets it: sealed with its number, stored without it, stamped by the relay."""
        seals = self.seam(key).sealing
        assert seals is not None
        given = Number(event.id, True, number if event.key else None, 3)
        sealed = seals.seal(topic, numbered(event, given))
        stored = self.codec.encode(msgspec.structs.replace(event, extensions=sealed.extensions))
        stored = self.codec.stamp(stored.headers, stored.body, given.sequence, given.lineage, "42")
        return Frame(topic=topic, id=event.id, headers=stored.headers, body=stored.body)

    def read(self, frame: Frame, at: float = AT, **modes: Any) -> Event[bytes]:
        delivery = Delivery(frame=frame, position=1, stored_at=at)
        return open_frame(self.seam(**modes), "books", delivery, 1_000_000)

    def refuses(self, frame: Frame, said: str = "", reason: str = "forged", at: float = AT) -> None:
        with pytest.raises(FrameRefused) as refused:
            self.read(frame, at)
        assert refused.value.reason == reason
        assert said in str(refused.value)

    def open(self, frame: Frame) -> Event[bytes]:
        """What is in a frame, whoever wrote it."""
        return self.codec.decode(frame.headers, frame.body)

    def rewritten_as(self, frame: Frame, event: Event[bytes]) -> Frame:
        """An event in our format."""
        encoded = self.codec.encode(event)
        return msgspec.structs.replace(frame, headers=encoded.headers, body=encoded.body)

    def rewritten(self, frame: Frame, **fields: Any) -> Frame:
        """A frame of ours with other fields, its seal and all else as they were."""
        return self.rewritten_as(frame, msgspec.structs.replace(self.open(frame), **fields))


@pytest.fixture
def shop(tmp_path: Path, codec: Codec) -> Shop:
    return Shop(tmp_path, codec)


@pytest.mark.parametrize("event", EVENTS, ids=["full", "plain", "binary data"])
def test_what_was_signed_comes_through_as_it_was_said(shop: Shop, event: Event[bytes]) -> None:
    read = shop.read(shop.frame(event))
    assert read == true(event, sequence=7 if event.key else None)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01"])
def test_a_time_that_is_none_in_utc_is_forged_and_passes_where_that_is_only_warned_of(shop: Shop, time: str) -> None:
    frame = shop.rewritten(shop.frame(), time=time)
    shop.refuses(frame, "is none in UTC")
    read = shop.read(frame, verify={"*": "warn"})
    assert read == shop.read(frame, verify={"*": "off"})
    seam = shop.seam(verify={"*": "warn"})
    open_frame(seam, "books", Delivery(frame=frame, position=1, stored_at=AT), 1_000_000)
    assert seam.counting.counter("signatures_refused_total", "shop", "forged", "warn").value == 1


def test_a_text_that_was_signed_as_a_number_is_forged_and_passes_where_that_is_only_warned_of(shop: Shop) -> None:
    said = msgspec.structs.replace(FULL, extensions={"count": "many"})
    key = read_keys(shop.keys.file)["shop-1"]
    marks = {"signedtopic": TOPIC, "signedscalars": "count"}
    sealed = FactDraft(key, shop.keys.secrets["shop-1"], marks, said).whole()
    frame = shop.rewritten_as(shop.frame(), sealed)
    shop.refuses(frame, "was signed as a number")
    assert shop.read(frame, verify={"*": "warn"}) == shop.read(frame, verify={"*": "off"})


TYPED: Mapping[str, Scalar] = {"flag": False, "yes": True, "count": -3, "zero": 0, "text": "5", "word": "true"}


@pytest.mark.parametrize("wire", ["structured", "binary", "melmastoon"])
@pytest.mark.parametrize("first", ["structured", "binary", "melmastoon"])
@pytest.mark.parametrize(
    "turned", [{"flag": "false"}, {"count": "-3", "yes": "true"}, {"text": 5}, {"word": True, "zero": "0"}], ids=str
)
def test_an_extension_has_the_type_that_was_signed_whatever_it_became_on_its_way(
    shop: Shop, first: str, wire: str, turned: dict[str, Scalar]
) -> None:
    """A text is true whatever it says: a flag that was false must not become one."""
    shop.codec = CODECS[first]
    frame = shop.frame(msgspec.structs.replace(FULL, extensions=dict(TYPED)))
    came = shop.open(frame)
    shop.codec = CODECS[wire]
    read = shop.read(shop.rewritten_as(frame, msgspec.structs.replace(came, extensions={**came.extensions, **turned})))
    assert read.extensions == TYPED
    assert {name: type(value) for name, value in read.extensions.items()} == {n: type(v) for n, v in TYPED.items()}


def test_a_header_that_names_what_is_no_text_is_not_needed_and_not_believed(shop: Shop) -> None:
    shop.codec = CODECS["binary"]
    frame = shop.frame(msgspec.structs.replace(FULL, extensions=dict(TYPED)))
    for headers in (
        {name: value for name, value in frame.headers.items() if name != "posthouse-scalars"},
        {**frame.headers, "posthouse-scalars": "text word"},
    ):
        assert shop.read(msgspec.structs.replace(frame, headers=headers)).extensions == TYPED


@pytest.mark.parametrize(
    "change", [{"flag": True}, {"count": 3}, {"text": "05"}, {"word": 1}, {"signedscalars": "text"}], ids=str
)
def test_another_value_of_an_extension_is_forged_whatever_its_type(shop: Shop, change: dict[str, Scalar]) -> None:
    frame = shop.frame(msgspec.structs.replace(FULL, extensions=dict(TYPED)))
    came = shop.open(frame)
    shop.refuses(shop.rewritten(frame, extensions={**came.extensions, **change}))


def test_a_fact_that_is_written_in_another_format_is_the_same_fact(shop: Shop) -> None:
    signed = shop.open(shop.frame())
    for other in CODECS.values():
        encoded = other.encode(signed)
        frame = Frame(topic=TOPIC, id=FULL.id, headers=encoded.headers, body=encoded.body)
        assert shop.read(frame) == true()


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "data": {"data": b'{"order_id":"a","n":2}'},
    "data written otherwise": {"data": b'{"order_id": "a","n":1}'},
    "no data": {"data": b""},
    "id": {"id": "other"},
    "type": {"type": "shop.order.cancelled.v1"},
    "source": {"source": "/shop2"},
    "tenant": {"tenant": "t2"},
    "platform": {"tenant": "platform"},
    "key": {"key": "b"},
    "no key": {"key": None},
    "sequence": {"sequence": 8},
    "no sequence": {"sequence": None},
    "lineage": {"lineage": 4},
    "time": {"time": "2026-11-19T20:09:52.396355Z"},
    "a microsecond": {"time": "2026-11-18T20:09:52.396356Z"},
    "the same moment, said otherwise": {"time": "2026-11-18T20:09:52.396355+00:00"},
    "no time": {"time": ""},
    "correlation": {"correlation": "c2"},
    "no correlation": {"correlation": None},
    "causation": {"causation": "e9"},
    "actor": {"actor": Actor(kind="user", id="root")},
    "no actor": {"actor": None},
    "producer": {"producer": Producer(service="bank")},
    "schema": {"schema": "schemas://shop/order/placed/v2"},
    "content type": {"content_type": "application/json; charset=utf-8"},
    "no content type": {"content_type": None},
    "idempotency key": {"idempotency_key": "i2"},
    "retention": {"metadata": Metadata(residency="eu", offline_replay=True, ai_provenance={"model": "m"})},
    "residency": {"metadata": msgspec.structs.replace(FULL.metadata, residency="us")},
    "offline replay": {"metadata": msgspec.structs.replace(FULL.metadata, offline_replay=False)},
    "provenance": {"metadata": msgspec.structs.replace(FULL.metadata, ai_provenance={"model": "n"})},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fact_that_was_changed_on_the_way_is_forged(shop: Shop, change: str) -> None:
    shop.refuses(shop.rewritten(shop.frame(), **CHANGES[change]))


@pytest.mark.parametrize("name", sorted(FULL.extensions))
def test_an_extension_that_was_changed_or_taken_away_is_forged(shop: Shop, name: str) -> None:
    frame = shop.frame()
    extensions = shop.open(frame).extensions
    shop.refuses(shop.rewritten(frame, extensions={**extensions, name: "other"}))
    shop.refuses(shop.rewritten(frame, extensions={key: value for key, value in extensions.items() if key != name}))


def test_an_extension_that_was_added_is_forged(shop: Shop) -> None:
    frame = shop.frame(PLAIN)
    shop.refuses(shop.rewritten(frame, extensions={**shop.open(frame).extensions, "dualof": "e1"}), "was added after")
    shop.refuses(shop.rewritten(frame, actor=Actor(kind="user", id="root")), "was added after")


def test_an_empty_extension_that_was_taken_away_is_forged(shop: Shop) -> None:
    frame = shop.frame(msgspec.structs.replace(PLAIN, extensions={"note": ""}))
    rest = {key: value for key, value in shop.open(frame).extensions.items() if key != "note"}
    shop.refuses(shop.rewritten(frame, extensions=rest), "was taken away after")


@pytest.mark.parametrize("change", [{"traceparent": None, "tracestate": None}, {"metadata": Metadata(outbox_id="9")}])
def test_what_decides_nothing_may_change_on_the_way(shop: Shop, change: Mapping[str, Any]) -> None:
    event = msgspec.structs.replace(FULL, metadata=Metadata())
    read = shop.read(shop.rewritten(shop.frame(event), **change))
    assert read == true(event, **change)


def test_heads_and_bodies_of_two_true_facts_that_were_swapped_are_forged(shop: Shop) -> None:
    one = shop.frame()
    other = shop.frame(msgspec.structs.replace(FULL, id="e9", data=b'{"order_id":"a","n":9}'), number=8)
    shop.refuses(shop.rewritten(one, data=shop.open(other).data))
    shop.refuses(shop.rewritten(one, extensions=shop.open(other).extensions))
    shop.refuses(shop.rewritten(other, sequence=7))
    if one.headers != other.headers:
        shop.refuses(msgspec.structs.replace(one, headers=other.headers))


def test_a_fact_without_a_signature_is_unsigned(shop: Shop) -> None:
    encoded = shop.codec.encode(FULL)
    frame = Frame(topic=TOPIC, id=FULL.id, headers=encoded.headers, body=encoded.body)
    shop.refuses(frame, reason="unsigned")
    signed = shop.frame()
    extensions = {name: value for name, value in shop.open(signed).extensions.items() if name != "dssematerial"}
    shop.refuses(shop.rewritten(signed, extensions=extensions), reason="unsigned")


def test_every_single_bit_of_a_frame_counts_or_changes_nothing(shop: Shop) -> None:
    """One bit of each byte: whatever comes through is the very fact, but for its trace and the spelling of the envelope."""
    frame = shop.frame()
    bare: dict[str, Any] = {"traceparent": None, "tracestate": None, "metadata": FULL.metadata}
    seam = shop.seam()
    through = 0
    for place in range(len(frame.body)):
        body = bytearray(frame.body)
        body[place] ^= 1 << place % 8
        bad = Delivery(frame=msgspec.structs.replace(frame, body=bytes(body)), position=1, stored_at=AT)
        try:
            read = open_frame(seam, "books", bad, 1_000_000)
        except (FrameRefused, DecodeError):
            continue
        through += 1
        assert true(read, **bare) == true(**bare)
    assert through < 120


def test_a_truncated_frame_is_refused(shop: Shop) -> None:
    frame = shop.frame()
    for end in range(0, len(frame.body), 7):
        with pytest.raises((FrameRefused, DecodeError)):
            shop.read(msgspec.structs.replace(frame, body=frame.body[:end]))


def envelope_of(shop: Shop, frame: Frame) -> Any:
    return msgspec.json.decode(base64.b64decode(str(shop.open(frame).extensions["dssematerial"])))


def with_envelope(shop: Shop, frame: Frame, envelope: object) -> Frame:
    value = base64.b64encode(msgspec.json.encode(envelope)).decode()
    return shop.rewritten(frame, extensions={**shop.open(frame).extensions, "dssematerial": value})


def test_a_signature_of_another_key_under_this_name_is_forged(shop: Shop) -> None:
    frame = shop.frame()
    envelope = envelope_of(shop, frame)
    payload = base64.b64decode(envelope["payload"])
    theirs = shop.keys.secrets["bank-1"].sign(pae(KIND, payload))
    envelope["signatures"][0]["sig"] = base64.b64encode(theirs).decode()
    shop.refuses(with_envelope(shop, frame, envelope), "is not by the key 'shop-1'")
    envelope["signatures"][0]["keyid"] = "bank-1"
    shop.refuses(with_envelope(shop, frame, envelope), "does not sign for '/shop'")
    envelope["signatures"][0]["keyid"] = "nobody"
    shop.refuses(with_envelope(shop, frame, envelope), "'nobody' is not known")


def test_a_second_signature_beside_a_true_one_does_no_harm_and_saves_no_false_one(shop: Shop) -> None:
    frame = shop.frame()
    envelope = envelope_of(shop, frame)
    envelope["signatures"].insert(0, {"keyid": "later", "sig": ""})
    assert shop.read(with_envelope(shop, frame, envelope)).id == FULL.id
    envelope["signatures"] = envelope["signatures"][:1] * 4
    shop.refuses(with_envelope(shop, frame, envelope), "not known")


def test_a_true_key_of_another_service_signs_nothing_of_this_one(shop: Shop) -> None:
    bank = shop.frame(msgspec.structs.replace(FULL, source="/bank"), key="bank-1", topic="bank.account")
    shop.refuses(shop.rewritten(bank, source="/shop"))
    shop.refuses(msgspec.structs.replace(bank, topic=TOPIC), "signed for the topic 'bank.account'")
    assert shop.read(bank).source == "/bank"


def test_a_key_of_another_tenant_signs_nothing_for_this_one(shop: Shop) -> None:
    key = shop.keys.make("t9-only", tenants=("t9",))
    shop.keys.change(msgspec.structs.replace(key, tenants=("*",)))
    frame = shop.frame(key="t9-only")
    shop.keys.change(key)
    shop.refuses(frame, "for this tenant")


def test_a_true_fact_in_another_topic_is_forged(shop: Shop) -> None:
    shop.refuses(msgspec.structs.replace(shop.frame(), topic="shop.refund"), "signed for the topic 'shop.order'")


def test_a_true_fact_among_the_dead_letters_of_its_topic_is_itself(shop: Shop) -> None:
    assert shop.read(msgspec.structs.replace(shop.frame(), topic=f"{TOPIC}.dlq")).id == FULL.id


def test_a_revoked_key_is_judged_by_the_arrival_and_never_by_the_time_in_the_fact(shop: Shop) -> None:
    key = shop.keys.make("stolen")
    back_dated = msgspec.structs.replace(FULL, time="2020-01-01T00:00:00.000000Z")
    frame = shop.frame(back_dated, key="stolen")
    shop.keys.change(msgspec.structs.replace(key, revoked=AT))
    assert shop.read(frame, AT - 1).id == FULL.id, "it had arrived before"
    shop.refuses(frame, "revoked", at=AT)


def test_a_retired_key_signs_nothing_and_what_it_signed_stays_good(shop: Shop) -> None:
    key = shop.keys.make("old", topics=("shop.*",))
    frame = shop.frame(key="old")
    shop.keys.change(msgspec.structs.replace(key, retired=AT - 1))
    assert shop.read(frame, AT + 10 * 365 * 86_400).id == FULL.id
    with pytest.raises(EventError, match="no key is active"):
        shop.frame(key="old")


def test_a_key_for_edits_proves_no_fact_on_its_way(shop: Shop) -> None:
    shop.keys.make("desk", use="edits")
    seals = shop.seam("desk").seals
    assert seals is not None
    place = Place(FULL.id, b"digest")
    edited = seals.reseal(TOPIC, msgspec.structs.replace(shop.open(shop.frame()), data=b"{}"), "ann", place)
    encoded = shop.codec.encode(edited)
    shop.refuses(Frame(topic=TOPIC, id=FULL.id, headers=encoded.headers, body=encoded.body), "signs edits")
    assert seals.prove(Arrival(TOPIC, AT, place), edited).data == b"{}"
    for other in (place._replace(name="other"), place._replace(digest=b"other"), place._replace(in_turn=False)):
        with pytest.raises(FrameRefused, match="signed it for another row"):
            seals.prove(Arrival(TOPIC, AT, other), edited)


def test_a_fact_is_held_with_its_digest_and_its_number_or_somebody_has_signed_otherwise(shop: Shop) -> None:
    seals = shop.seam("shop-1").seals
    assert seals is not None
    fact, place = shop.open(shop.frame()), Place(FULL.id, b"digest")
    assert seals.prove(Arrival(TOPIC, AT, place), fact).id == FULL.id
    assert seals.prove(Arrival(TOPIC, AT, place._replace(in_turn=False, loose=True)), fact).id == FULL.id
    with pytest.raises(FrameRefused, match="lost its number"):
        seals.prove(Arrival(TOPIC, AT, place._replace(in_turn=False)), fact)
    with pytest.raises(FrameRefused, match="digest of other bytes"):
        seals.prove(Arrival(TOPIC, AT, place._replace(intact=False)), fact)


def test_a_key_for_checkpoints_proves_no_fact_at_all(shop: Shop) -> None:
    key = shop.keys.make("log")
    frame = shop.frame(key="log")
    shop.keys.change(msgspec.structs.replace(key, use="audit"))
    shop.refuses(frame, "signs checkpoints of the audit log")


def test_what_waits_as_a_timer_proves_no_fact(shop: Shop) -> None:
    seals = shop.seam("shop-1").seals
    assert seals is not None
    waiting = seals.seal(TOPIC, FULL, waiting=True)
    arrival = Arrival(TOPIC, AT)
    assert seals.is_intact(arrival, waiting, waiting=True)
    assert not seals.is_intact(arrival, waiting)
    assert not seals.is_intact(arrival, msgspec.structs.replace(waiting, data=b"{}"), waiting=True)
    assert not seals.is_intact(arrival, seals.seal(TOPIC, FULL), waiting=True), "and a fact is no timer"
    assert not seals.is_intact(arrival, FULL, waiting=True)
    encoded = shop.codec.encode(waiting)
    shop.refuses(
        Frame(topic=TOPIC, id=FULL.id, headers=encoded.headers, body=encoded.body), "signed for the topic 'timer "
    )


@pytest.mark.parametrize(
    ("said", "at", "passes"),
    [
        ("off", AT, True),
        ("warn", AT, True),
        ("require", AT, False),
        ("require since 2027-01-15T08:00:00Z", AT - 1, True),
        ("require since 2027-01-15T08:00:00Z", AT, False),
    ],
)
def test_what_is_asked_is_asked_by_topic_and_since_a_day(shop: Shop, said: str, at: float, passes: bool) -> None:
    encoded = shop.codec.encode(FULL)
    frame = Frame(topic=TOPIC, id=FULL.id, headers=encoded.headers, body=encoded.body)
    verify = {"shop.order": said, "*": "off"}
    if passes:
        assert shop.read(frame, at, verify=verify) == FULL
    else:
        with pytest.raises(FrameRefused):
            shop.read(frame, at, verify=verify)
    assert shop.read(msgspec.structs.replace(frame, topic="bank.x"), at, verify=verify) == FULL


def test_what_would_be_refused_is_counted_and_told_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    seam = shop.seam(verify={"*": "warn"})
    frame = shop.rewritten(shop.frame(), data=b"{}")
    for _ in range(3):
        open_frame(seam, "books", Delivery(frame=frame, position=1, stored_at=AT), 10_000)
    assert seam.counting.counter("signatures_refused_total", "shop", "forged", "warn").value == 3
    assert caplog.text.count("would be refused") == 1


def test_a_key_without_a_private_half_here_signs_nothing(shop: Shop) -> None:
    assert shop.seam().sealing is None
    with pytest.raises(EventError, match="no key is active for /shop"):
        shop.frame(key="bank-1")

"""From a payload to a row, and from a row to a frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from posthouse import Actor, Service
from posthouse.broker import Capabilities
from posthouse.clock import ManualClock
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError, ContractError, EventError, EventTooLarge
from posthouse.events import CODECS, Event, Producer, decode_any
from posthouse.events.limits import HARD_LIMIT
from posthouse.seam import EnvelopeBuilder, EventContext, context_of
from posthouse.seam.frames import frame_of
from posthouse.store import OutboxRow

plant = Service("plant", namespace="works")
other = Service("other")


@plant.event("thing.made.v1", key="key", retention="cold")
@dataclass(frozen=True)
class ThingMade:
    key: str
    text: str = ""


@plant.event("view.seen.v1")
@dataclass(frozen=True)
class ViewSeen:
    number: int = 0
    text: str = ""


namesake = Service("plant", namespace="quarry")


@namesake.event("stone.cut.v1", key="key")
@dataclass(frozen=True)
class StoneCut:
    key: str


@other.event("thing.found.v1", key="key")
@dataclass(frozen=True)
class ThingFound:
    key: str


def builder(
    limit: int = 100_000, wire: str = "structured", broker: Callable[[], Capabilities] | None = None
) -> EnvelopeBuilder:
    clock = ManualClock(1_800_000_000.0)
    return EnvelopeBuilder(Producer(service="plant"), "/works/plant", CODECS[wire], clock, limit, sheet=broker)


def sheet(**changes: object) -> Capabilities:
    plain = Capabilities(name="test", durable_ack=True, ordered_publish=True, ordered_redelivery=True)
    return msgspec.structs.replace(plain, **changes)


def read(row: OutboxRow) -> Event[bytes]:
    return decode_any(row.headers, row.body)


def test_a_fact_is_named_timed_and_signed_with_its_producer_and_schema() -> None:
    row = builder().build_one(ThingMade("k", "hello"), EventContext(tenant="t1"))
    event = read(row)
    assert (row.topic, row.tenant, row.key, row.numbered) == ("works.plant.thing", "t1", "k", True)
    assert (event.type, event.source, event.tenant, event.key) == (
        "works.plant.thing.made.v1",
        "/works/plant",
        "t1",
        "k",
    )
    assert event.id == row.event_id
    assert event.time == "2027-01-15T08:00:00.000000Z"
    assert event.data == b'{"key":"k","text":"hello"}'
    assert event.schema == event_type_of(ThingMade).schema
    assert event.metadata.retention == "cold"
    assert event.producer is not None
    assert event.producer.service == "plant"
    assert event.correlation == event.id, "a story without a name begins under the id of its first event"


def test_a_fact_inherits_what_its_cause_knows() -> None:
    context = EventContext(
        tenant="t1",
        correlation="01JCORRELATION",
        causation="earlier",
        actor=Actor(kind="user", id="u1"),
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        tracestate="a=b",
    )
    event = read(builder().build_one(ViewSeen(), context))
    assert (event.correlation, event.causation, event.actor) == ("01JCORRELATION", "earlier", context.actor)
    assert (event.traceparent, event.tracestate) == (context.traceparent, "a=b")
    follows = context_of(msgspec.structs.replace(event, data=object()))
    assert (follows.tenant, follows.correlation, follows.causation) == ("t1", "01JCORRELATION", event.id)
    assert follows.actor == context.actor


def test_what_follows_from_a_story_without_a_name_is_named_after_its_first_fact() -> None:
    event: Event[object] = Event(id="first", type="t", source="/s", data=None, time="", tenant="t1")
    assert context_of(event).correlation == "first"


def test_every_event_needs_a_tenant() -> None:
    with pytest.raises(EventError, match="needs a tenant"):
        builder().build_one(ViewSeen(), EventContext(tenant=""))


def test_another_services_event_may_be_read_not_said() -> None:
    with pytest.raises(ConfigurationError, match=r"other.thing.found.v1 belongs to the service 'other'"):
        builder().build_one(ThingFound("k"), EventContext(tenant="t1"))


def test_something_that_is_no_event_is_named() -> None:
    with pytest.raises(ConfigurationError, match="dict is not an event"):
        builder().build_one({"key": "k"}, EventContext(tenant="t1"))


def test_a_payload_that_breaks_its_own_type_is_refused() -> None:
    with pytest.raises(ContractError, match="ViewSeen"):
        builder().build_one(ViewSeen(number="many"), EventContext(tenant="t1"))  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="key field 'key'"):
        builder().build_one(ThingMade(""), EventContext(tenant="t1"))


def test_too_many_bytes_are_refused_with_size_limit_and_name() -> None:
    for text in ("x" * 5000, "x" * 900):
        with pytest.raises(EventTooLarge, match=r"works.plant.thing.made.v1 .* limit is 1,000") as refused:
            builder(limit=1000).build_one(ThingMade("k", text), EventContext(tenant="t1"))
        assert refused.value.limit == 1000 < refused.value.size


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("numbered", [True, False], ids=["with a number", "without one"])
def test_the_brokers_limit_leaves_exactly_the_room_that_the_longest_stamp_takes(wire: str, numbered: bool) -> None:
    known = [sheet(max_bytes=2000)]
    small = builder(wire=wire, broker=lambda: known[-1])
    text = "x" * 2000
    while True:
        made: object = ThingMade("k", text) if numbered else ViewSeen(text=text)
        try:
            row = small.build_one(made, EventContext(tenant="t1"))
            break
        except EventTooLarge:
            text = text[:-1]
    number = 2**63 - 2 if numbered else None
    stamped = frame_of(msgspec.structs.replace(row, id=2**63 - 1, sequence=number, lineage=2**31 - 1))
    size = len(stamped.body) + sum(len(name) + len(value) for name, value in stamped.headers.items())
    assert size == 2000
    known.append(sheet(max_bytes=10_000))
    small.build_one(ThingMade("k", "x" * 2000), EventContext(tenant="t1"))


def test_readers_look_at_the_largest_event_whatever_the_limit_and_the_stamp() -> None:
    large = builder(limit=2 * HARD_LIMIT)
    text = "x" * (HARD_LIMIT - 100)
    with pytest.raises(EventTooLarge) as refused:
        large.build_one(ThingMade("k", text), EventContext(tenant="t1"))
    fits = text[: refused.value.limit - refused.value.size]
    row = large.build_one(ThingMade("k", fits), EventContext(tenant="t1"))
    with pytest.raises(EventTooLarge):
        large.build_one(ThingMade("k", f"{fits}x"), EventContext(tenant="t1"))
    stamped = frame_of(msgspec.structs.replace(row, id=2**63 - 1, sequence=2**63 - 2, lineage=2**31 - 1))
    assert decode_any(stamped.headers, stamped.body).lineage == 2**31 - 1


def test_what_a_broker_takes_holds_from_the_moment_it_is_known() -> None:
    known = [sheet()]
    made = builder(broker=lambda: known[-1])
    made.build_one(ThingMade("k", "x" * 2000), EventContext(tenant="t1"))
    known.append(sheet(max_bytes=1000))  # its server was reached
    with pytest.raises(EventTooLarge, match="limit is 1,000"):
        made.build_one(ThingMade("k", "x" * 2000), EventContext(tenant="t1"))


@pytest.mark.parametrize("wire", CODECS)
def test_a_frame_carries_the_number_that_the_store_gave(wire: str) -> None:
    row = builder(wire=wire).build_one(ThingMade("k"), EventContext(tenant="t1"))
    stamped = frame_of(msgspec.structs.replace(row, sequence=42, lineage=3))
    event = decode_any(stamped.headers, stamped.body)
    assert (event.sequence, event.lineage, event.data) == (42, 3, b'{"key":"k","text":""}')
    assert (stamped.topic, stamped.id, stamped.key) == ("works.plant.thing", row.event_id, "t1:k")


def test_a_frame_without_a_key_is_sent_as_it_was_written() -> None:
    row = builder().build_one(ViewSeen(), EventContext(tenant="t1"))
    assert (row.key, row.numbered) == (None, False)
    frame = frame_of(row)
    assert (frame.key, frame.body, frame.headers) == (None, row.body, row.headers)


@pytest.mark.parametrize("wire", CODECS)
def test_a_fact_that_the_store_numbers_brings_no_number_of_its_own(wire: str) -> None:
    """Both would stand in the event, and every reader refuses a name that is given twice."""
    with pytest.raises(EventError, match="sequence"):
        builder(wire=wire).build(ThingMade("k"), EventContext(tenant="t1"), extensions={"sequence": "7th"})
    (row,) = builder(wire=wire).build(ViewSeen(), EventContext(tenant="t1"), extensions={"sequence": "7th"})
    frame = frame_of(row)
    assert decode_any(frame.headers, frame.body).extensions == {"sequence": "7th"}


def test_a_namesake_in_another_namespace_does_not_publish_the_facts_of_a_service() -> None:
    with pytest.raises(ConfigurationError, match=r"belongs to the service 'quarry\.plant': 'works\.plant' may read it"):
        builder().build_one(StoneCut("k"), EventContext(tenant="t1"))
    with pytest.raises(ConfigurationError, match=r"belongs to the service 'other'"):
        builder().build_one(ThingFound("k"), EventContext(tenant="t1"))

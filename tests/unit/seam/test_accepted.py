"""What a publisher accepts, every consumer can read, as the same values; what it does not accept it refuses by name."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any

import pydantic
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from posthouse import Actor, Payload, Service
from posthouse.clock import ManualClock
from posthouse.contracts import avro, event_type_of
from posthouse.errors import ContractError, EventError, PosthouseError
from posthouse.events import CODECS, Event, Producer, codec_of, decode_any
from posthouse.events.trace import is_traceparent, is_tracestate
from posthouse.seam import EnvelopeBuilder, EventContext

shop = Service("shop")


class Plan(enum.Enum):
    PAID = "paid"


class Region(str, enum.Enum):  # noqa: UP042 - what its members are called differs from what they say
    NORTH = "north"


class Name(str):
    """A library's own kind of text."""


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: Any
    more: Any = None
    weight: float | None = None


@shop.event("order.paid.v1", key="order_id")
class OrderPaid(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    order_id: str | int
    more: Any = None
    weight: float | None = None


@shop.event("order.sent.v1", key="order_id")
@avro
@dataclasses.dataclass
class OrderSent:
    order_id: str
    more: dict[str, float]
    weight: float | None = None


texts = st.one_of(
    st.text(st.characters(), max_size=12),
    st.sampled_from(
        ["", "t1", "\x00", "a\x00b", "\ud800", "ünïcode", "x" * 300, "é" * 600, "a b", "line\nbreak", "platform"]
    ),
    st.sampled_from([Region.NORTH, Name("mine")]),
)
no_texts = st.sampled_from([0, 5, True, 1.5, b"t1", Plan.PAID, ["t1"], {"t": 1}, object()])
anything = st.sampled_from(["t1", "acme", "zürich"]) | texts | no_texts
"""What hurried people give, a third of it fine: so that what is accepted is looked at often enough."""
json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(st.characters(), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
weights = st.none() | st.floats()
traces = st.sampled_from([None, "", "garbage", 5, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
payloads = st.one_of(
    st.builds(OrderPlaced, order_id=anything, more=json_values, weight=weights),
    st.builds(OrderPaid.model_construct, order_id=anything, more=json_values, weight=weights),
    st.builds(
        OrderSent, order_id=texts, more=st.dictionaries(st.text(max_size=4), st.floats(), max_size=3), weight=weights
    ),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    wire=st.sampled_from(["structured", "binary"]),
    payload=payloads,
    context=st.fixed_dictionaries(
        {"tenant": anything},
        optional={
            "correlation": anything,
            "causation": anything,
            "actor": st.tuples(anything, anything) | no_texts,
            "traceparent": traces,
            "tracestate": st.sampled_from([None, "", "a=b", "no state", 5]),
        },
    ),
    idempotency_key=st.none() | anything,
)
def test_whatever_is_accepted_is_read_as_the_same_values(
    wire: str, payload: Any, context: dict[str, Any], idempotency_key: Any
) -> None:
    builder = EnvelopeBuilder(Producer(service="shop"), "/shop", CODECS[wire], ManualClock(1_800_000_000.0), 100_000)
    actor = context.get("actor")
    assume(context["tenant"] != "platform")
    try:
        if isinstance(actor, tuple):
            context["actor"] = Actor(kind=actor[0], id=actor[1])
        row = builder.build_one(payload, EventContext(**context), idempotency_key=idempotency_key)
    except PosthouseError:
        return
    stamped = codec_of(row.headers, row.body).stamp(row.headers, row.body, 7, 3, "o1")
    event = decode_any(*stamped)
    assert (event.tenant, event.key) == (context["tenant"], _text(payload.order_id)) == (row.tenant, row.key)
    assert event.idempotency_key == idempotency_key == row.idempotency_key
    assert event.correlation == (context.get("correlation") or event.id)
    assert event.causation == context.get("causation") or context.get("causation") == ""
    assert event.actor == (context.get("actor") or Actor(kind="service", id="shop"))
    given_trace, given_state = context.get("traceparent"), context.get("tracestate")
    assert event.traceparent == (given_trace if given_trace and is_traceparent(given_trace) else None)
    assert event.tracestate == (
        given_state if event.traceparent and given_state and is_tracestate(given_state) else None
    )
    assert (event.sequence, event.lineage) == (7, 3)
    again: Any = event_type_of(type(payload)).payload.decode(event.data)
    for field in ("order_id", "more", "weight"):
        assert _same(getattr(again, field), getattr(payload, field)), field


def _text(value: Any) -> str:
    return str.__str__(value) if isinstance(value, str) else str(value)


def _same(read: Any, said: Any) -> bool:
    """NaN is read as NaN where the format has one."""
    if isinstance(said, dict):
        return read.keys() == said.keys() and all(_same(read[name], said[name]) for name in said)
    if isinstance(said, list):
        return len(read) == len(said) and all(map(_same, read, said))
    return bool(read == said) or (isinstance(said, float) and math.isnan(said) and math.isnan(read))


def build(payload: object, wire: str = "structured", **context: Any) -> Event[bytes]:
    builder = EnvelopeBuilder(Producer(service="shop"), "/shop", CODECS[wire], ManualClock(), 100_000)
    row = builder.build_one(payload, EventContext(**{"tenant": "t1", **context}))
    return decode_any(row.headers, row.body)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (lambda: EventContext(tenant=5), "tenant=5 is int, not a text: write tenant='5'"),  # type: ignore[arg-type]
        (lambda: EventContext(tenant="t", correlation=b"c"), "write correlation='c'"),  # type: ignore[arg-type]
        (lambda: EventContext(tenant="a\x00b"), "tenant holds a NUL character"),
        (lambda: EventContext(tenant="\ud800"), "tenant holds half a surrogate pair"),
        (lambda: EventContext(tenant="x" * 257), "tenant has 257 bytes, the longest has 256"),
        (lambda: EventContext(tenant=""), "every event needs a tenant"),
        (lambda: EventContext(tenant="t", actor="ann"), "write actor=Actor(kind='user', id='…')"),  # type: ignore[arg-type]
        (lambda: EventContext(tenant="t", traceparent=5), "traceparent=5 is int, not a text"),  # type: ignore[arg-type]
        (lambda: Actor(kind="user", id=5), "write Actor(…, id='5'), not 5"),  # type: ignore[arg-type]
    ],
)
def test_what_an_event_inherits_is_checked_where_it_is_given(said: Callable[[], object], sentence: str) -> None:
    with pytest.raises(EventError) as refused:
        said()
    assert sentence in str(refused.value)


@pytest.mark.parametrize("wire", ["structured", "binary"])
@pytest.mark.parametrize("key", [0, 5, True, b"k", "", "\x00", "\ud800", "x" * 513])
def test_an_idempotency_key_that_no_reader_takes_is_refused(wire: str, key: Any) -> None:
    builder = EnvelopeBuilder(Producer(service="shop"), "/shop", CODECS[wire], ManualClock(), 100_000)
    with pytest.raises(EventError, match="idempotency_key"):
        builder.build_one(OrderPlaced("o1"), EventContext(tenant="t1"), idempotency_key=key)


def test_an_enum_of_texts_is_what_it_says() -> None:
    event = build(OrderPlaced(Region.NORTH), tenant=Region.NORTH, correlation=Name("c"))
    assert (event.tenant, event.key, event.correlation) == ("north", "north", "c")
    assert event.extensions == {}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("made", [OrderPlaced, OrderPaid])
def test_a_number_that_json_cannot_say_is_refused_with_its_place(number: float, made: Callable[..., object]) -> None:
    with pytest.raises(ContractError, match=r"at `\$\.weight` is no number that JSON can say"):
        build(made(order_id="o1", weight=number))
    with pytest.raises(ContractError, match=r"at `\$\.more\.lines\[1\]`"):
        build(made(order_id="o1", more={"lines": [None, number]}))


def test_a_trace_that_nobody_could_follow_is_dropped_and_the_fact_is_said() -> None:
    event = build(OrderPlaced("o1"), traceparent="from a stranger", tracestate="a=b")
    assert (event.traceparent, event.tracestate) == (None, None)

"""Any event that may be said, for property tests."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from posthouse.events import PLATFORM, Actor, Event, Metadata, Producer
from posthouse.events.codecs.attributes import RESERVED

characters = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
words = st.text(characters, min_size=1, max_size=20)
loose_words = st.text(characters, max_size=20)
integers = st.integers(-(2**63) + 1, 2**63 - 1)
scalars = loose_words | integers | st.booleans()
json_values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | loose_words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(loose_words, inner, max_size=3),
    max_leaves=8,
)
json_data = st.just(b"") | json_values.map(msgspec.json.encode)
names = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in RESERVED and name not in ("sequence", "partitionkey")
)
times = st.just("") | st.datetimes().map(lambda when: when.isoformat() + "Z")


def _hex(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


traces = st.tuples(
    st.builds("00-{}-{}-{:02x}".format, _hex(32), _hex(16), st.integers(0, 255)),
    st.none() | st.sampled_from(["congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,tenant@vendor=1"]),
)
payloads = st.tuples(st.sampled_from([None, "application/json", "application/vnd.acme+json; charset=utf-8"]), json_data)
binaries = st.tuples(st.sampled_from(["application/octet-stream", "text/plain; charset=utf-8"]), st.binary(max_size=40))


@st.composite
def events(draw: st.DrawFn) -> Event[bytes]:
    content_type, data = draw(payloads | binaries)
    traceparent, tracestate = draw(st.just((None, None)) | traces)
    optional = st.none() | words
    return Event(
        id=draw(words),
        type=draw(words | st.sampled_from(["shop.orders.order.placed.v1", "a.v0", ".v1", "a.v01", "a.v1.v2"])),
        source=draw(words | st.just("orders")),
        data=data,
        time=draw(times),
        tenant=draw(words | st.just(PLATFORM)),
        key=draw(optional),
        sequence=draw(st.none() | st.integers(0, 2**63 - 2)),
        lineage=draw(st.just(1) | st.integers(0, 2**31 - 1)),
        correlation=draw(optional),
        causation=draw(optional),
        actor=draw(st.none() | st.builds(Actor, kind=loose_words, id=loose_words)),
        producer=draw(
            st.none()
            | st.builds(
                Producer,
                service=loose_words | st.just("orders"),
                instance=loose_words,
                commit=loose_words,
                region=loose_words,
            )
        ),
        schema=draw(optional),
        content_type=content_type,
        idempotency_key=draw(optional),
        traceparent=traceparent,
        tracestate=tracestate,
        metadata=draw(
            st.builds(
                Metadata,
                retention=st.sampled_from(["hot", "warm", "cold"]),
                residency=optional,
                offline_replay=st.booleans(),
                ai_provenance=st.none() | st.dictionaries(loose_words, json_values, max_size=2),
                outbox_id=optional,
            )
        ),
        extensions=draw(st.dictionaries(names, scalars, max_size=3)),
    )


def an_event(data: bytes = b'{"order_id":"o1"}', **fields: object) -> Event[bytes]:
    """A plain event with some fields of one's own."""
    plain: Event[bytes] = Event(
        id="0190b3c0-7b1a-7def-8a3b-0123456789ab",
        type="shop.orders.order.placed.v1",
        source="shop.orders",
        data=data,
        time="2026-01-02T03:04:05.678901Z",
    )
    return msgspec.structs.replace(plain, **fields)

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.clock import new_id, new_ulid
from posthouse.events import TraceContext
from posthouse.events.trace import (
    correlation_to_trace_id,
    is_traceparent,
    is_tracestate,
    span_id_of,
    trace_id_to_ulid,
    trace_id_to_uuid,
    ulid_to_uuid,
    uuid_to_ulid,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_traceparent_is_read_and_written_back() -> None:
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-01", "congo=t61rcWkgMzE")
    assert context == TraceContext(trace_id=TRACE, span_id=SPAN, flags=1, tracestate="congo=t61rcWkgMzE")
    assert context.traceparent == f"00-{TRACE}-{SPAN}-01"
    assert context.sampled


def test_a_child_keeps_trace_flags_and_state_and_has_a_span_of_its_own() -> None:
    parent = TraceContext(trace_id=TRACE, span_id=SPAN, flags=0, tracestate="a=1")
    child = parent.child(new_id())
    assert (child.trace_id, child.flags, child.tracestate) == (TRACE, 0, "a=1")
    assert child.span_id != SPAN
    assert is_traceparent(child.traceparent)
    assert not child.sampled
    assert parent.child("0190b3c0-7b1a-7def-8a3b-0123456789ab").span_id == "8a3b0123456789ab"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01more",
        f"01-{TRACE}-{SPAN}-01-\n",
        f"0-{TRACE}-{SPAN}-01",
        f"00_{TRACE}-{SPAN}-01",
    ],
)
def test_an_invalid_traceparent_begins_a_new_trace(text: str) -> None:
    assert TraceContext.parse(text, "congo=1") is None
    assert not is_traceparent(text)


def test_a_later_version_is_read_as_far_as_we_know_it() -> None:
    context = TraceContext.parse(f"cc-{TRACE}-{SPAN}-ff-what-the-future-brings")
    assert context is not None
    assert context.traceparent == f"00-{TRACE}-{SPAN}-03"
    assert is_traceparent(f"cc-{TRACE}-{SPAN}-01")
    assert TraceContext.parse(None) is None


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("congo=t61rcWkgMzE", True),
        ("a=1, b=2\t,,c=3", True),
        ("tenant@vendor=x y", True),
        (",".join(f"k{n}=1" for n in range(32)), True),
        (",".join(f"k{n}=1" for n in range(33)), False),
        ("a=1,a=2", False),
        ("A=1", False),
        ("a=", False),
        ("a=b=c", False),
        ("a=ü", False),
        ("a", False),
        ("", False),
        ("a=" + "x" * 511, False),
    ],
)
def test_tracestate_follows_the_grammar(text: str, valid: bool) -> None:
    assert is_tracestate(text) is valid
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-01", text)
    assert context is not None
    assert context.tracestate == (text if valid else None)


@given(st.integers(1, 2**128 - 1))
def test_ids_of_128_bits_go_from_form_to_form_and_back(number: int) -> None:
    trace_id = f"{number:032x}"
    as_uuid, as_ulid = trace_id_to_uuid(trace_id), trace_id_to_ulid(trace_id)
    for correlation in (trace_id, as_uuid, as_uuid.upper(), as_ulid, as_ulid.lower()):
        assert correlation_to_trace_id(correlation) == trace_id
    assert ulid_to_uuid(as_ulid) == as_uuid == str(uuid.UUID(int=number))
    assert uuid_to_ulid(as_uuid) == as_ulid


def test_a_known_ulid_is_a_known_uuid() -> None:
    assert ulid_to_uuid("01ARZ3NDEKTSV4RRFFQ69G5FAV") == "01563e3a-b5d3-d676-4c61-efb99302bd5b"
    assert correlation_to_trace_id("0IARZ3NDEKTSV4RRFFQ69G5FAV") == "01563e3ab5d3d6764c61efb99302bd5b"


@pytest.mark.parametrize(
    "text", ["", "req-1", "8" + "0" * 25, "0" * 26, "0" * 32, "u" * 26, TRACE + "0", f"{{{TRACE}}}"]
)
def test_other_text_is_no_trace_id(text: str) -> None:
    assert correlation_to_trace_id(text) is None


def test_text_that_is_no_ulid_is_an_error_when_one_was_asked_for() -> None:
    for text in ("x", "8" + "0" * 25):
        with pytest.raises(ValueError, match="not a ULID"):
            ulid_to_uuid(text)


def test_a_new_trace_takes_its_id_from_the_correlation() -> None:
    for correlation in (new_ulid(), new_id()):
        context = TraceContext.start(new_id(), correlation)
        assert context.trace_id == correlation_to_trace_id(correlation)
        assert is_traceparent(context.traceparent)
    assert is_traceparent(TraceContext.start(new_id(), "req-1").traceparent)
    assert is_traceparent(TraceContext.start(new_id()).traceparent)


def test_span_ids_do_not_repeat() -> None:
    assert len({span_id_of(new_id()) for _ in range(1000)}) == 1000

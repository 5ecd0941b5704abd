"""Which frames belong to a trace, and what an id says about time."""

from __future__ import annotations

import pytest

from posthouse.clock import new_id, new_ulid
from posthouse.events import CODECS, Event
from posthouse.tracing.wanted import Wanted, made_at


def event(*, id: str = "e1", correlation: str | None = None, data: bytes = b"{}") -> Event[bytes]:
    return Event(
        id=id,
        type="shop.orders.placed.v1",
        source="/orders",
        data=data,
        time="2026-04-22T10:00:00Z",
        correlation=correlation,
    )


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("correlation", ["req-1", 'a"b', "каса", "a\\b", "a/b c", "x" * 200])
def test_a_frame_is_known_by_its_correlation_in_every_format(wire: str, correlation: str) -> None:
    encoded = CODECS[wire].encode(event(correlation=correlation))
    found = Wanted(correlation).match(encoded.headers, encoded.body)
    assert found is not None
    assert found.correlation == correlation
    assert Wanted(f"{correlation}2").match(encoded.headers, encoded.body) is None


@pytest.mark.parametrize("wire", CODECS)
def test_the_event_that_began_the_correlation_is_known_by_its_id(wire: str) -> None:
    encoded = CODECS[wire].encode(event(id="e7"))
    assert Wanted("e7").match(encoded.headers, encoded.body) is not None


def test_a_frame_that_only_mentions_the_id_does_not_belong() -> None:
    encoded = CODECS["structured"].encode(event(correlation="other", data=b'{"note": "see req-1"}'))
    assert Wanted("req-1").match(encoded.headers, encoded.body) is None


def test_bytes_that_are_no_event_do_not_belong() -> None:
    assert Wanted("req-1").match({}, b"req-1") is None


def test_ids_that_hold_a_time_say_when_they_were_made() -> None:
    assert made_at(new_ulid(1_800_000_000.5)) == pytest.approx(1_800_000_000.5, abs=0.001)
    made = made_at(new_id())
    assert made is not None
    assert 1_700_000_000 < made < 4_000_000_000


@pytest.mark.parametrize(
    "identifier", ["req-1", "", "3f0c0d0e-1c2d-4e5f-8a9b-0c1d2e3f4a5b", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"]
)
def test_other_ids_say_nothing_about_time(identifier: str) -> None:
    assert made_at(identifier) is None

"""A delivery is made of whatever a broker stored, and that never fails."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

from posthouse.broker import Frame, Topology
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.handing import LATEST, frame_of, handed, moment
from posthouse.clock import SystemClock
from tests.kit.spoiling import in_embedded


def test_what_raises_becomes_a_defect_under_the_place_of_the_record() -> None:
    make = partial(frame_of, "shop.orders", b"id", None, b'{"n":1}', b"body")
    delivery = handed(make, topic="shop.orders", body=b"body", position=7, stored_at=1.0, redelivered=False, token=3)
    assert delivery.frame == Frame(topic="shop.orders", id="shop.orders:7", body=b"body")
    assert delivery.defect.startswith("ValidationError: ")
    assert (delivery.position, delivery.token) == (7, 3)


def test_a_body_that_is_no_bytes_is_a_defect_too() -> None:
    frame = Frame(topic="t", id="1", body="text")  # type: ignore[arg-type]  # as a database may give it
    delivery = handed(
        lambda: frame, topic="t", body=frame.body, position=1, stored_at=1.0, redelivered=True, token=None
    )
    assert (delivery.frame.body, bool(delivery.defect), delivery.redelivered) == (b"text", True, True)


@pytest.mark.parametrize(
    ("stored", "told"),
    [(5.5, 5.5), (-1.0, 0.0), (math.nan, 0.0), (math.inf, LATEST), (2.0**62, LATEST), (None, 0.0), ("x", 0.0)],
)
def test_a_time_can_be_written_down_whatever_was_stored_as_one(stored: object, told: float) -> None:
    assert moment(stored) == told


@pytest.mark.parametrize("column", ["id", "key", "headers"])
async def test_a_text_in_the_file_that_is_none_any_more_hurts_its_own_frame(tmp_path: Path, column: str) -> None:
    broker = EmbeddedBroker(tmp_path / "log.db", clock=SystemClock())
    await broker.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
    await broker.publish([Frame(topic="t", id=str(n), key="k", body=b"x", headers={"n": "1"}) for n in range(5)])
    in_embedded(tmp_path / "log.db", "t", column)
    stream = await broker.subscribe("g", ["t"])
    got = await stream.receive(10, 5.0)
    await broker.aclose()
    assert [bool(delivery.defect) for delivery in got] == [False, True, False, False, False]

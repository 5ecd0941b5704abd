"""What the shop does."""

from types import ModuleType

import psycopg
import pytest

from posthouse.testing import SyncHarness, capture_outbox


def test_an_order_is_placed_and_said(script: ModuleType) -> None:
    with capture_outbox(script.shop) as said:
        script.main("place", "o1")
    assert [event.data.order_id for event in said.of(script.OrderPlaced)] == ["o1"]


def test_an_order_that_was_not_placed_is_not_said(script: ModuleType) -> None:
    script.main("place", "o1")
    with capture_outbox(script.shop) as said, pytest.raises(psycopg.errors.UniqueViolation):
        script.main("place", "o1")
    assert said.subjects == []


def test_an_order_is_packed_once(script: ModuleType, posthouse_store: str) -> None:
    with SyncHarness(script.shop, store=posthouse_store) as harness:
        script.main("place", "o1")
        harness.settled()
        with psycopg.connect(script.URL) as connection:
            assert connection.execute("SELECT order_id FROM parcels").fetchall() == [("o1",)]
        harness.assert_replay_safe()

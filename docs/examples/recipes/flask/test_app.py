"""What the shop does."""

from types import ModuleType

import pytest
from flask.testing import FlaskClient
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from posthouse.testing import SyncHarness, capture_outbox


def test_an_order_is_placed_and_said(client: FlaskClient, app: ModuleType) -> None:
    with capture_outbox(app.shop) as said:
        assert client.post("/orders/o1").json == {"placed": "o1"}
    assert [event.data.order_id for event in said.of(app.OrderPlaced)] == ["o1"]


def test_an_order_that_was_not_placed_is_not_said(client: FlaskClient, app: ModuleType) -> None:
    client.post("/orders/o1")
    with capture_outbox(app.shop) as said, pytest.raises(IntegrityError):
        client.post("/orders/o1")
    assert said.subjects == []


def test_the_id_of_a_request_is_in_its_answer_and_in_its_event(client: FlaskClient, app: ModuleType) -> None:
    with capture_outbox(app.shop) as said:
        answer = client.post("/orders/o1")
    assert [event.correlation for event in said.of(app.OrderPlaced)] == [answer.headers["X-Correlation-ID"]]


def test_an_order_is_packed_once(client: FlaskClient, app: ModuleType, posthouse_store: str) -> None:
    with SyncHarness(app.shop, store=posthouse_store) as harness:
        client.post("/orders/o1")
        harness.settled()
        with app.sessions() as session:
            assert session.scalars(select(app.Parcel.order_id)).all() == ["o1"]
        harness.assert_replay_safe()

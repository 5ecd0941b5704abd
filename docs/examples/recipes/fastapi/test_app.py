"""What the shop does."""

from types import ModuleType

import httpx
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from posthouse.testing import Harness, capture_outbox


async def test_an_order_is_placed_and_said(client: httpx.AsyncClient, app: ModuleType) -> None:
    with capture_outbox(app.shop) as said:
        assert (await client.post("/orders/o1")).json() == {"placed": "o1"}
    assert [event.data.order_id for event in said.of(app.OrderPlaced)] == ["o1"]


async def test_an_order_that_was_not_placed_is_not_said(client: httpx.AsyncClient, app: ModuleType) -> None:
    await client.post("/orders/o1")
    with capture_outbox(app.shop) as said, pytest.raises(IntegrityError):
        await client.post("/orders/o1")
    assert said.subjects == []


async def test_the_id_of_a_request_is_in_its_answer_and_in_its_event(
    client: httpx.AsyncClient, app: ModuleType
) -> None:
    with capture_outbox(app.shop) as said:
        answer = await client.post("/orders/o1")
    assert [event.correlation for event in said.of(app.OrderPlaced)] == [answer.headers["X-Correlation-ID"]]


async def test_an_order_is_packed_once(client: httpx.AsyncClient, app: ModuleType, posthouse_store: str) -> None:
    async with Harness(app.shop, store=posthouse_store) as harness:
        await client.post("/orders/o1")
        await harness.settled()
        async with app.sessions() as session:
            assert (await session.scalars(select(app.Parcel.order_id))).all() == ["o1"]
        await harness.assert_replay_safe()


def test_migrations_and_models_agree(posthouse_store: str) -> None:
    command.check(Config("alembic.ini"))

"""Facts that are said in transactions of others: what their spans know of the end of these."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from posthouse import App, Payload, Service
from posthouse.clock import new_id
from posthouse.events.trace import correlation_to_trace_id
from tests.kit.spans import Collected, trace_id


class Shop:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.db"
        self.collected = Collected()
        self.orders = Service("orders")

        @self.orders.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        self.placed = Placed
        self.app = App(
            self.orders,
            store=f"sqlite:///{self.file}",
            broker=f"embedded:///{folder}/log.db",
            tracer_provider=self.collected.provider,
        )

    @property
    def fates(self) -> list[object]:
        return [(span.attributes or {})["posthouse.outcome"] for span in self.collected.named("posthouse.create")]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path)
    await made.app.open()
    async with made.orders.transaction() as tx:
        await tx.execute("CREATE TABLE orders (id TEXT)")
    yield made
    await made.app.aclose()


def test_plain_code_that_joins_has_its_facts_below_its_own_span(shop: Shop) -> None:
    with shop.collected.tracer.start_as_current_span("POST /orders"), closing(sqlite3.connect(shop.file)) as theirs:
        with shop.orders.outbox.joined(theirs) as tx:
            tx.publish(shop.placed(order_id="o1"))
        shop.orders.outbox.add_now(theirs, shop.placed(order_id="o2"))
        theirs.commit()
    assert shop.collected.tree() == [
        "POST /orders",
        "  create order.placed.v1 [written]",
        "  create order.placed.v1 [written]",
    ]


def test_a_block_that_is_left_with_an_error_has_written_nothing(shop: Shop) -> None:
    with (
        closing(sqlite3.connect(shop.file)) as theirs,
        contextlib.suppress(KeyError),
        shop.orders.outbox.joined(theirs) as tx,
    ):
        tx.publish(shop.placed(order_id="o1"))
        raise KeyError
    assert shop.fates == ["rolled back"]


def test_a_session_of_sqlalchemy_rolls_back_a_savepoint_with_its_facts(shop: Shop) -> None:
    engine = create_engine(f"sqlite:///{shop.file}")
    with Session(engine) as session, shop.orders.outbox.joined(session) as tx:
        tx.publish(shop.placed(order_id="o1"))
        with contextlib.suppress(KeyError), session.begin_nested():
            tx.publish(shop.placed(order_id="o2"))
            raise KeyError
    engine.dispose()
    assert shop.fates == ["written", "rolled back"]


async def test_an_asynchronous_session_that_is_joined_or_added_to(shop: Shop) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{shop.file}")
    async with AsyncSession(engine) as session:
        async with shop.orders.joined(session, correlation=(correlation := new_id())) as tx:
            tx.publish(shop.placed(order_id="o1"))
        await shop.orders.outbox.add(session, shop.placed(order_id="o2"), correlation=correlation)
        await session.commit()
    await engine.dispose()
    assert shop.fates == ["written", "written"]
    assert {trace_id(span) for span in shop.collected.spans} == {correlation_to_trace_id(correlation)}


@pytest.mark.parametrize(
    ("sql", "fate"),
    [("INSERT INTO orders VALUES ('o1')", "committed"), ("DELETE FROM orders WHERE id = 'nobody'", "rolled back")],
)
async def test_a_statement_that_is_recorded_says_whether_its_fact_was_said(shop: Shop, sql: str, fate: str) -> None:
    await shop.orders.record(sql, (), shop.placed(order_id="o1"))
    assert shop.fates == [fate]


async def test_a_statement_that_fails_takes_its_fact_with_it(shop: Shop) -> None:
    with pytest.raises(Exception, match="nowhere"):
        await shop.orders.record("INSERT INTO nowhere VALUES (1)", (), shop.placed(order_id="o1"))
    assert shop.fates == ["rolled back"]

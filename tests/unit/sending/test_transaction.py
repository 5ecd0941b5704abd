"""Tx and Outbox: what is said with a transaction, and what is not when it fails."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pydantic
import pytest

from posthouse import App, Payload, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness

plant = Service("plant")


@plant.event("thing.made.v1", key="key")
class ThingMade(Payload):
    key: str
    number: int = 0


@plant.event("view.seen.v1")
class ViewSeen(pydantic.BaseModel):
    number: int = 0


async def test_the_same_intent_is_said_once_per_tenant_and_topic() -> None:
    async with Harness(plant) as harness:
        for number in range(3):
            async with plant.transaction("t1") as tx:
                tx.publish(ThingMade(key="k", number=number), idempotency_key="intent")
        async with plant.transaction("t2") as tx:
            tx.publish(ThingMade(key="k", number=7), idempotency_key="intent")
        async with plant.transaction("t1") as tx:
            tx.publish(ViewSeen(number=8), idempotency_key="intent")
            tx.publish(ThingMade(key="k", number=9), idempotency_key="another")
        await harness.settled()
        made = await harness.published(ThingMade)
        assert [(e.tenant, e.data.number, e.sequence) for e in made] == [("t1", 0, 1), ("t2", 7, 1), ("t1", 9, 2)]
        assert made[0].idempotency_key == "intent"
        assert len(await harness.published(ViewSeen)) == 1


async def _say_and_fail() -> None:
    async with plant.transaction("t1") as tx:
        tx.publish(ThingMade(key="k"), idempotency_key="intent")
        await tx.flush()
        raise ZeroDivisionError


async def test_an_intent_that_was_rolled_back_may_be_said_again() -> None:
    async with Harness(plant) as harness:
        with pytest.raises(ZeroDivisionError):
            await _say_and_fail()
        async with plant.transaction("t1") as tx:
            tx.publish(ThingMade(key="k", number=1), idempotency_key="intent")
        await harness.settled()
        assert [(e.data.number, e.sequence) for e in await harness.published(ThingMade)] == [(1, 1)]


async def test_what_a_handler_returns_may_be_nothing_one_or_several() -> None:
    async with Harness(plant) as harness:
        async with plant.transaction("t1") as tx:
            tx.publish_all(None)
            tx.publish_all(ThingMade(key="k", number=1))
            tx.publish_all([ThingMade(key="k", number=2), ViewSeen(number=3)])
            tx.publish_all(ThingMade(key="k", number=n) for n in (4, 5))
            tx.publish_all(())
            tx.publish_all(ViewSeen(number=6))  # a pydantic model is iterable, and one event all the same
        await harness.settled()
        assert [e.data.number for e in await harness.published(ThingMade)] == [1, 2, 4, 5]
        assert [e.data.number for e in await harness.published(ViewSeen)] == [3, 6]


@pytest.mark.parametrize("nonsense", ["text", b"bytes", 7, {"a": 1}])
async def test_returning_something_that_is_no_event_is_an_error(nonsense: object) -> None:
    async with Harness(plant):
        with pytest.raises(ConfigurationError, match="is not an event"):
            async with plant.transaction("t1") as tx:
                tx.publish_all(nonsense)


async def test_a_timer_can_be_cancelled_before_and_after_it_is_written_and_only_by_its_tenant() -> None:
    async with Harness(plant) as harness:
        async with plant.transaction("t1") as tx:
            tx.publish(ThingMade(key="k", number=1), after=10, timer="same transaction")
            assert await tx.cancel("same transaction")
            assert not await tx.cancel("same transaction")
            unnamed = tx.publish(ThingMade(key="k", number=2), after=10)
            tx.publish(ThingMade(key="k", number=3), after=10, timer="kept")
        async with plant.transaction("t2") as tx:
            assert not await tx.cancel("kept"), "another tenant's timer"
        async with plant.transaction("t1") as tx:
            assert await tx.cancel(unnamed)
        await harness.advance(10)
        assert [e.data.number for e in await harness.published(ThingMade)] == [3]
        async with plant.transaction("t1") as tx:
            assert not await tx.cancel("kept"), "it has fired"


@pytest.mark.parametrize("after", [None, 0, 0.0, -1.5])
async def test_a_fact_that_is_due_is_said_with_the_transaction_and_not_by_a_timer(after: float | None) -> None:
    async with Harness(plant) as harness:
        async with plant.transaction("t1") as tx:
            tx.publish(ThingMade(key="k", number=1), after=after)
        assert sum((await app_of(plant).store.counts()).committed.values()) == 1
        await harness.settled()
        assert [e.data.number for e in await harness.published(ThingMade)] == [1]


async def test_a_timer_of_the_same_name_moves_and_replaces_the_first() -> None:
    async with Harness(plant) as harness:
        for number, after in ((1, 10), (2, 30)):
            async with plant.transaction("t1") as tx:
                tx.publish(ThingMade(key="k", number=number), after=after, timer="hold")
        await harness.advance(15)
        assert await harness.published(ThingMade) == []
        await harness.advance(15)
        assert [e.data.number for e in await harness.published(ThingMade)] == [2]


async def test_a_transaction_knows_its_tenant_and_reads_its_own_writes() -> None:
    async with Harness(plant), plant.transaction("t9") as tx:
        assert tx.tenant == "t9"
        await tx.execute("CREATE TABLE mine (n)")
        await tx.execute("INSERT INTO mine VALUES (?)", (1,))
        assert (await tx.execute("SELECT n FROM mine")).scalar() == 1
        assert isinstance(tx.connection, sqlite3.Connection)


async def test_an_idempotency_key_stands_for_one_fact(tmp_path: Path) -> None:
    one = Service("plant")
    App(one, store=f"sqlite:///{tmp_path / 'plant.db'}", broker="memory://")
    await app_of(one).open()
    connection = sqlite3.connect(tmp_path / "plant.db", isolation_level=None)
    try:
        connection.execute("BEGIN")
        with pytest.raises(ValueError, match="stands for one fact"):
            await one.outbox.add(connection, ThingMade(key="a"), ThingMade(key="b"), tenant="t1", idempotency_key="i")
        first = await one.outbox.add(connection, ThingMade(key="a"), tenant="t1", idempotency_key="i")
        again = one.outbox.add_now(connection, ThingMade(key="a"), tenant="t1", idempotency_key="i")
        assert first == again
        connection.execute("COMMIT")
        assert (await app_of(one).store.counts()).committed == {"plant.thing": 1}
    finally:
        connection.close()
        await one.aclose()

"""Transactions that collide: deadlocks and serialization failures are nobody's fault, so they cost no attempt."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import psycopg
import pytest

from posthouse import Event, Policy, Tx
from posthouse.app import app_of
from posthouse.store import HeldFilter
from tests.faults.plant import Made, at_work, book, effects, plant, say, settled

IMPATIENT = "ALTER DATABASE {} SET deadlock_timeout = '50ms'"


@pytest.fixture
def url(postgres_url: str) -> str:
    """A database that finds deadlocks quickly, with two rows to fight for."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = psycopg.sql.Identifier(connection.info.dbname)
        connection.execute(psycopg.sql.SQL(IMPATIENT).format(name))
        connection.execute("CREATE TABLE account (name text PRIMARY KEY, total int NOT NULL)")
        connection.execute("INSERT INTO account VALUES ('x', 0), ('y', 0)")
    return postgres_url


async def total(service_tx: Tx, name: str) -> int:
    return int(str((await service_tx.execute("SELECT total FROM account WHERE name = $1", (name,))).scalar()))


async def test_two_handlers_that_wait_for_each_others_rows_are_both_applied_at_once_and_no_attempt_is_counted(
    url: str,
) -> None:
    service, runs, meeting = plant(), Counter[str](), asyncio.Barrier(2)

    @service.on(Made, policy=Policy(max_attempts=1))
    async def move(event: Event[Made], tx: Tx) -> None:
        runs[event.data.key] += 1
        first, second = ("x", "y") if event.data.key == "there" else ("y", "x")
        await tx.execute("UPDATE account SET total = total + 1 WHERE name = $1", (first,))
        if runs[event.data.key] == 1:
            await meeting.wait()  # now each holds what the other wants
        await tx.execute("UPDATE account SET total = total + 1 WHERE name = $1", (second,))

    async with at_work(service, url) as running:
        began = time.monotonic()
        async with running.transaction("t1") as tx:
            tx.publish(Made(key="there"))
            tx.publish(Made(key="back"))
        figures = await settled(running)
        took = time.monotonic() - began
        assert sorted(runs.values()) == [1, 2], "one of them was rolled back, and ran again"
        assert await app_of(running).store.held.find(HeldFilter()) == []
        async with running.transaction("t1") as tx:
            assert (await total(tx, "x"), await total(tx, "y")) == (2, 2)
        assert [line.applied for line in figures.lines if line.committed] == [2]
        assert took < 5.0


async def test_a_serialization_failure_runs_the_handler_again_at_once_in_the_order_of_its_key(url: str) -> None:
    """READ COMMITTED has none of its own, but a trigger, a foreign table or a server of another maker may."""
    service, runs = plant(), Counter[int]()

    @service.on(Made, policy=Policy(max_attempts=1))
    async def collide(event: Event[Made], tx: Tx) -> None:
        runs[event.data.number] += 1
        await book(event, tx)
        if event.data.number == 1 and runs[1] <= 2:
            await tx.execute("DO $$ BEGIN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$")

    async with at_work(service, url) as running:
        await say(running, "k", 0, 1, 2)
        await settled(running)
        assert await effects(running, "k") == [0, 1, 2]
        assert runs == {0: 1, 1: 3, 2: 1}
        assert await app_of(running).store.held.find(HeldFilter()) == []


async def test_a_handler_cannot_raise_the_isolation_of_a_transaction_that_has_begun(url: str) -> None:
    """The claim comes first, so the sentence of the server is the answer, and it counts as a failure of the handler."""
    service = plant()

    @service.on(Made, policy=Policy(max_attempts=1))
    async def ask(event: Event[Made], tx: Tx) -> None:
        await tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")

    async with at_work(service, url) as running:
        await say(running, "k", 1)
        await settled(running)
        [held] = await app_of(running).store.held.find(HeldFilter())
        assert (held.state, "must be called before any query" in held.error) == ("dead", True)

"""Lists for people on PostgreSQL: none of them reads a large table whole, and one that takes too long says so."""

from __future__ import annotations

import asyncpg
import pytest

from benchmarks.postgres import console
from benchmarks.postgres.explaining import hearing
from benchmarks.postgres.server import run
from posthouse.errors import StoreUnavailable
from posthouse.store import HeldFilter
from posthouse.store.outbox import SentFilter
from posthouse.store.sagas import SagaFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.counting import MOST
from posthouse.stores.postgres.gauging import LIMIT, STANDING
from posthouse.stores.postgres.held import OVERDUE
from posthouse.stores.postgres.timers import ANY_DUE


async def test_no_list_reads_a_large_table_whole(store: PostgresStore, postgres_url: str) -> None:
    await console.fill(postgres_url, 3_000, 1_500)
    *answers, plans, planned, whole = await console.asked(postgres_url, 3_000, 1, pages=False)
    assert len(answers) == 2 * len(console.QUESTIONS), "each has answered"
    assert plans.ours >= len(console.QUESTIONS), "each was explained"
    assert (planned.ours, whole.ours) == (0, 0), (planned.measure, whole.measure)
    counting = {
        "a count": lambda browsing, drawn, held: run(
            postgres_url, "SELECT count(*) FROM posthouse.held WHERE type <> ''"
        )
    }
    *_, whole = await console.asked(postgres_url, 3_000, 1, questions=counting, pages=False)
    assert whole.ours == 1, "one that does would be noticed"


async def test_no_statement_behind_a_page_is_planned_to_read_a_large_table_whole(
    store: PostgresStore, postgres_url: str
) -> None:
    await console.fill(postgres_url, 3_000, 1_500)
    *_, plans, planned, _ = await console.asked(postgres_url, 3_000, 1, questions={})
    assert plans.ours >= 20, "what pages send was heard"
    assert planned.ours == 0, planned.measure
    with hearing() as heard:
        await store.outbox.sent(SentFilter(key="nobody"), 0, 10)
    _, whole = await heard.read_whole(postgres_url, console.LARGE)
    assert any(name.startswith("outbox") for name in whole), "one that does would be noticed"


async def test_a_list_that_takes_too_long_says_what_to_ask_instead(store: PostgresStore, postgres_url: str) -> None:
    blocker = await asyncpg.connect(postgres_url)
    try:
        await store.browsing.held(HeldFilter())
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE posthouse.held, posthouse.saga IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable, match=r"held events took longer than 0\.1 s .* Ask for one consumer"):
                await store.browsing.held(HeldFilter(), timeout=0.1)
            with pytest.raises(StoreUnavailable, match=r"sagas took longer than 0\.1 s .* Ask for one saga"):
                await store.browsing.sagas(SagaFilter(), timeout=0.1)
        assert await store.browsing.held(HeldFilter()) == []
    finally:
        await blocker.close()


async def test_what_is_not_due_yet_is_not_read_to_see_what_is(store: PostgresStore, postgres_url: str) -> None:
    """A clock that is read anew for each row is no bound for an index."""
    session = await asyncpg.connect(postgres_url)
    try:
        await console.fill(postgres_url, 3_000, 1_500)
        await session.execute("ANALYZE posthouse.held, posthouse.timer")
        statements = ((STANDING, (None, MOST)), (OVERDUE, ("consumer-0", None, 100)), (ANY_DUE, (None,)))
        for statement, parameters in statements:
            async with session.transaction(readonly=True):
                await session.fetch(LIMIT, "10000")
                rows = await session.fetch(f"EXPLAIN (ANALYZE, FORMAT TEXT) {statement}", *parameters)
            passed_over = [
                row[0] for row in rows if "Filter: (" in row[0] and ("next_at <=" in row[0] or "due_at <=" in row[0])
            ]
            assert passed_over == [], statement
    finally:
        await session.close()

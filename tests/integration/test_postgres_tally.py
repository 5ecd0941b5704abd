"""The tally of PostgreSQL is what is there, whoever changes the tables and however."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import asyncpg
import pytest

from posthouse.errors import PosthouseError, StoreUnavailable
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.gauges import step
from posthouse.testing.store_contract.samples import entry, held, row
from posthouse.testing.store_contract.steps import add, hold

COPIED = """
INSERT INTO posthouse.held (consumer, topic, tenant, lineage, event_id, digest, time, state, type, body, attempts, next_at,
    first_at, last_at, reason, error, stack)
SELECT 'c' || n % 3, 't', 't1', 1, 'e' || n, '', 0, 'dead', 'x', '', 0, 0, 0, 0, '', '', '' FROM generate_series(1, $1::integer) n
"""
WRONG = """
SELECT kind, name, topic, state, sum(number)::integer FROM (
    SELECT * FROM posthouse.counted()
    UNION ALL SELECT kind, name, topic, state, -number FROM posthouse.tallied() WHERE kind <> 'ended') d
GROUP BY 1, 2, 3, 4 HAVING sum(number) <> 0
"""


@pytest.fixture
async def session(store: PostgresStore, postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def differences(session: Any) -> list[tuple[object, ...]]:
    """Where the tally is not what is there."""
    return [tuple(found) for found in await session.fetch(WRONG)]


async def dead(store: PostgresStore) -> Mapping[str, int]:
    return {consumer: number for (consumer, _, state), number in (await store.counts()).held.items() if state == "dead"}


async def test_rows_that_come_and_go_in_bulk_are_one_line_each_of_their_kind(
    store: PostgresStore, session: Any
) -> None:
    await session.execute(COPIED, 300)
    lines = await session.fetch("SELECT kind, count(*) FROM posthouse.tally_change GROUP BY kind ORDER BY kind")
    assert [tuple(line) for line in lines] == [("failure", 3), ("held", 3)]
    assert await dead(store) == {"c0": 100, "c1": 100, "c2": 100}
    await session.execute("UPDATE posthouse.held SET state = 'skipped' WHERE consumer = 'c0'")
    await session.execute("DELETE FROM posthouse.held WHERE consumer = 'c1'")
    assert await dead(store) == {"c2": 100}
    assert (await store.counts()).skipped == {("c0", "t"): 100}
    await store.inbox.purge(3600.0, 10_000)
    assert await session.fetchval("SELECT count(*) FROM posthouse.tally_change") == 0
    assert await dead(store) == {"c2": 100}
    assert await differences(session) == []


async def test_housekeeping_leaves_no_line_of_what_was_counted_however_fast_they_come(
    store: PostgresStore, session: Any
) -> None:
    """Every look reads what was not summed up yet."""
    await session.execute(
        "INSERT INTO posthouse.applied_count SELECT 'c', 't' || n % 3, 1, 0 FROM generate_series(1, 3500) n"
    )
    await session.execute(
        "INSERT INTO posthouse.tally_change SELECT 'held', 'c', 't', 'dead', n % 2 FROM generate_series(1, 3500) n"
    )
    before = await store.sums()
    await store.inbox.purge(3600.0, 1000)
    for table in ("applied_count", "tally_change"):
        assert await session.fetchval(f"SELECT count(*) FROM posthouse.{table}") == 0, table
    assert await store.sums() == before


async def test_a_table_that_is_copied_into_or_truncated_is_counted(store: PostgresStore, session: Any) -> None:
    await session.execute(COPIED, 30)
    await store.inbox.purge(3600.0, 10_000)
    rows = [tuple(found) for found in await session.fetch("SELECT * FROM posthouse.held")]
    await session.execute("TRUNCATE posthouse.held")
    assert (await store.counts()).held == {}
    await session.copy_records_to_table("held", records=rows, schema_name="posthouse")
    assert await dead(store) == {"c0": 10, "c1": 10, "c2": 10}
    assert await differences(session) == []


async def test_what_a_savepoint_takes_back_was_never_counted(store: PostgresStore, session: Any) -> None:
    async with session.transaction():
        await session.execute(COPIED, 3)
        inner = session.transaction()
        await inner.start()
        await session.execute("DELETE FROM posthouse.held")
        await inner.rollback()
        await session.execute("DELETE FROM posthouse.held WHERE consumer = 'c0'")
    assert await dead(store) == {"c1": 1, "c2": 1}


async def test_a_claim_writes_no_line_since_it_changes_no_kind(store: PostgresStore, session: Any) -> None:
    await hold(store, held(entry(None), "retrying"))
    before = await session.fetchval("SELECT count(*) FROM posthouse.tally_change")
    (due,) = await store.held.claim_due("billing", 10, 60.0)
    await store.held.keep([due], 60.0)
    assert await session.fetchval("SELECT count(*) FROM posthouse.tally_change") == before


async def test_writers_housekeeping_and_sessions_that_are_killed_leave_a_tally_that_is_true(
    store: PostgresStore, postgres_url: str, session: Any
) -> None:
    """Six at once, while sessions are ended at random and one looks all the time: at every moment the figures are what is there."""
    over = asyncio.Event()

    async def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            try:
                await step(chance, store)
            except PosthouseError:
                continue  # a collision, or the session was ended

    async def kill() -> int:
        killed = 0
        while not over.is_set():
            killed += await session.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND datname = current_database() AND state = 'idle in transaction' LIMIT 1) s"
            )
            await asyncio.sleep(0.02)
        return killed

    async def watch() -> int:
        looks = 0
        looking = await asyncpg.connect(postgres_url, server_settings={"application_name": "watch"})
        while not over.is_set():
            assert await differences(looking) == []
            looks += 1
        await looking.close()
        return looks

    watching, killing = asyncio.create_task(watch()), asyncio.create_task(kill())
    await asyncio.gather(*map(work, range(6)))
    over.set()
    assert await killing > 3
    assert await watching > 5
    assert await session.fetchval("SELECT sum(number) FROM posthouse.tallied() WHERE kind = 'held'") > 0


async def test_a_tally_that_was_spoiled_is_found_by_the_checks_and_put_right(
    store: PostgresStore, session: Any
) -> None:
    async def found() -> tuple[str, str]:
        (check,) = [check for check in await store.checks() if check.name == "tally"]
        return check.judgement, check.found

    await session.execute(COPIED, 3)
    assert await found() == ("ok", "its figures are what is there")
    await session.execute("ALTER TABLE posthouse.held DISABLE TRIGGER USER")
    await session.execute("DELETE FROM posthouse.held WHERE consumer = 'c0'")
    await session.execute("ALTER TABLE posthouse.held ENABLE TRIGGER USER")
    assert await found() == ("warn", "2 of its figures are not what is there"), "of the held, and of their failures"
    assert await session.fetchval("SELECT posthouse.recount()") == 2
    assert await dead(store) == {"c1": 1, "c2": 1}
    assert (await found())[0] == "ok"


async def test_a_row_is_as_old_as_its_writing_not_as_its_transaction(store: PostgresStore, session: Any) -> None:
    async with session.transaction():
        began = await session.fetchval("SELECT pg_sleep(0.3)::text, now()", column=1)
        await store.outbox.append(store.join(session), [row("a")])
    written = await session.fetchval("SELECT written_at FROM posthouse.outbox")
    assert (written - began).total_seconds() >= 0.3
    await session.execute("UPDATE posthouse.outbox SET written_at = now() - interval '1 hour'")
    assert 3600 <= (await store.gauges()).oldest_unsent < 3660
    await add(store, row("a"), row("b", topic="shop.others"))
    gauges = await store.gauges()
    assert 3600 <= gauges.oldest_unsent < 3660
    assert gauges.unsent_oldest["shop.others"] < 60, "each topic has an age of its own"


async def test_a_transaction_that_was_open_for_long_does_not_hide_what_has_waited_longer(
    store: PostgresStore, session: Any
) -> None:
    """Its number is older than that of what was written and committed meanwhile."""
    async with session.transaction():
        await session.execute("SELECT pg_current_xact_id()")
        await add(store, row("a"))
        await store.outbox.append(store.join(session), [row("a")])
    await session.execute("UPDATE posthouse.outbox SET written_at = now() - interval '1 hour' WHERE sequence = 1")
    assert 3600 <= (await store.gauges()).oldest_unsent < 3660


async def test_a_reading_that_takes_too_long_gives_up(store: PostgresStore, session: Any) -> None:
    async with session.transaction():
        await session.execute("LOCK TABLE posthouse.held IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match=r"did not say how it stands within 0\.2 s"):
            await store.gauges(timeout=0.2)
    assert (await store.gauges()).counts == await store.counts()


# What waits, as its definition says: what no snapshot of its shard shows, and no page of a backlog had.
BY_DEFINITION = """
SELECT o.topic, count(*), min(o.written_at) FROM posthouse.shard l LEFT JOIN posthouse.backlog b ON b.number = l.backlog
JOIN posthouse.outbox o ON o.shard = l.number
WHERE NOT pg_visible_in_snapshot(o.xid, l.s1) AND NOT coalesce(pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id, false)
GROUP BY o.topic
"""


async def test_what_waits_is_counted_right_wherever_relays_and_open_transactions_stand(
    store: PostgresStore, postgres_url: str, session: Any
) -> None:
    """Transactions that stay open while others commit and a relay reads on, in small steps and through long backlogs."""
    chance = random.Random(7)
    others = [await asyncpg.connect(postgres_url) for _ in range(4)]
    begun: dict[int, Any] = {}
    shards = await store.outbox.lease("r", 3600)
    opened = 0
    for _ in range(120):
        number = chance.randrange(len(others))
        act = chance.choice(("begin", "begin", "end", "commit", "read", "read", "many"))
        if act == "begin" and number not in begun:
            begun[number] = others[number].transaction()
            await begun[number].start()
            rows = [row(f"o{number}-{n}", topic=chance.choice(("a", "b"))) for n in range(chance.randrange(1, 20))]
            await store.outbox.append(store.join(others[number]), rows)
        elif act == "end" and number in begun:
            await (begun.pop(number).commit() if chance.random() < 0.7 else begun.pop(number).rollback())
        elif act in ("commit", "many"):
            await add(store, *(row(f"k{n}") for n in range(chance.randrange(1, 8) if act == "commit" else 60)))
        elif act == "read":
            poll = await store.outbox.poll(shards, chance.choice((3, 10, 50)))
            assert await store.outbox.settle("r", poll, [])
        opened += bool(await session.fetchval("SELECT count(*) FROM posthouse.backlog"))
        expected = {found[0]: found[1] for found in await session.fetch(BY_DEFINITION)}
        first = min((found[2] for found in await session.fetch(BY_DEFINITION)), default=None)
        gauges = await store.gauges()
        assert gauges.counts.unsent == (await store.counts()).unsent == expected
        assert (gauges.oldest_unsent > 0) == (first is not None)
    assert opened > 10, "long backlogs were among it"
    for other in others:
        await other.close()


async def test_a_backlog_that_is_too_long_to_count_is_estimated_by_ids(store: PostgresStore, session: Any) -> None:
    await add(store, row("sent"))
    await session.execute("UPDATE posthouse.shard SET s1 = pg_current_snapshot()")
    await session.execute(
        "INSERT INTO posthouse.outbox (shard, topic, tenant, lineage, event_id, body) "
        "SELECT n % 16, CASE WHEN n % 4 = 0 THEN 'a' ELSE 'b' END, 't', 1, 'e' || n, '' FROM generate_series(1, 25000) n"
    )
    exact, found = await store.counts(), (await store.gauges()).counts
    assert (exact.estimated, exact.unsent) == (False, {"a": 6250, "b": 18750})
    assert found.estimated
    assert 25_000 <= sum(found.unsent.values()) <= 25_100
    assert all(number > 0 for number in found.unsent.values())

"""What breaks outboxes on PostgreSQL: late commits, savepoints, open transactions, 2PC, plans, restores, lost answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from posthouse.clock import SystemClock
from posthouse.errors import CommitUnknown, DeadlineExceeded, StoreError, StoreUnavailable
from posthouse.store import HeldFilter, OutboxRow, Poll
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row, stuck
from posthouse.testing.store_contract.steps import add, claim, drain, failing, hold, standing
from tests.kit.servers.postgres import session
from tests.kit.waiting import eventually


def ids(rows: Sequence[OutboxRow]) -> list[str]:
    return [found.event_id for found in rows]


async def fetch(store: PostgresStore, sql: str, *parameters: object) -> object:
    async with store.begin() as tx:
        return (await tx.execute(sql, parameters)).scalar()


# Opening


async def test_a_postgres_url_keeps_the_options_of_the_driver(postgres_url: str) -> None:
    store = open_store(f"{postgres_url}?schema=events&shards=5&application_name=shop&writers=2", clock=SystemClock())
    await store.upgrade()
    assert store.writers == 2
    assert len(await store.outbox.lease("a", 10)) == 5
    async with store.begin() as tx:
        assert (await tx.execute("SHOW application_name")).scalar() == "shop"
        assert (await tx.execute("SELECT to_regclass('events.outbox') IS NOT NULL")).scalar()
        assert (await tx.execute("SELECT to_regnamespace('posthouse') IS NULL")).scalar()
    await store.aclose()


# Commits that come late


async def test_a_late_commit_is_read_when_it_comes(store: PostgresStore) -> None:
    async with store.begin() as slow:
        await store.outbox.append(slow, [row("slow", event_id="first id")])
        await add(store, row("quick", event_id="second id"))
        assert ids(await drain(store)) == ["second id"]
    assert ids(await drain(store)) == ["first id"]


async def test_a_transaction_left_open_stalls_nobody(store: PostgresStore) -> None:
    async with store.begin() as old:
        await store.outbox.append(old, [row(f"o{number}") for number in range(3)])
        for number in range(20):
            await add(store, row(f"k{number}"))
            assert len(await drain(store)) == 1
        assert await store.outbox.purge(100) == 20, "nor does it keep what was sent"
    assert len(await drain(store)) == 3


async def test_what_a_savepoint_rolled_back_is_never_seen(store: PostgresStore, postgres_url: str) -> None:
    async with session(postgres_url) as connection, connection.transaction():
        joined = store.join(connection)
        await store.outbox.append(joined, [row("k", event_id="a")])
        for number in range(70):  # more than a backend keeps in shared memory
            with contextlib.suppress(ZeroDivisionError):
                async with connection.transaction():
                    await store.outbox.append(joined, [row("k", event_id=f"s{number}")])
                    async with connection.transaction():
                        await store.outbox.append(joined, [row("k", event_id=f"n{number}")])
                    if number % 2:
                        raise ZeroDivisionError
    found = await drain(store)
    assert len(found) == 1 + 2 * 35
    assert [one.sequence for one in found] == list(range(1, 72))


async def test_a_prepared_transaction_is_read_when_it_is_committed(store: PostgresStore, postgres_url: str) -> None:
    async with session(postgres_url) as connection:
        if await connection.fetchval("SHOW max_prepared_transactions") == "0":
            pytest.skip("the server has no prepared transactions")
        for name in ("kept", "dropped"):
            await connection.execute("BEGIN")
            await store.outbox.append(store.join(connection), [row(name, event_id=name)])
            await connection.execute(f"PREPARE TRANSACTION '{name}'")
        await add(store, row("k", event_id="between"))
        assert ids(await drain(store)) == ["between"]
        await connection.execute("COMMIT PREPARED 'kept'")
        await connection.execute("ROLLBACK PREPARED 'dropped'")
    assert ids(await drain(store)) == ["kept"]


async def test_a_commit_between_a_poll_and_its_settling_is_not_passed_over(store: PostgresStore) -> None:
    shards = await store.outbox.lease("a", 30)
    await add(store, row("k", event_id="first"))
    poll = await store.outbox.poll(shards, 10)
    await add(store, row("k", event_id="second"))
    assert ids(poll.rows) == ["first"]
    assert await store.outbox.settle("a", poll, [])
    assert ids(await drain(store)) == ["second"]


# Backlogs


async def test_a_backlog_is_paged_while_others_write(store: PostgresStore) -> None:
    await add(store, *(row("k", event_id=f"e{number:02}") for number in range(10)))
    shards = await store.outbox.lease("a", 30)
    found: list[str] = []
    while (poll := await store.outbox.poll(shards, 3)).rows:
        found += ids(poll.rows)
        if len(found) <= 9:
            await add(store, row("k", event_id=f"e{9 + len(found) // 3}"))
        assert await store.outbox.settle("a", poll, [])
    assert found == [f"e{number:02}" for number in range(13)]


@pytest_asyncio.fixture
async def one_shard(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, shards=1)
    await store.upgrade()
    yield store
    await store.aclose()


async def test_a_backlog_passes_over_what_was_sent_before(one_shard: PostgresStore) -> None:
    store = one_shard
    async with store.begin() as slow:
        await store.outbox.append(slow, [row("slow", event_id=f"slow{number}") for number in range(3)])
        await add(store, row("quick", event_id="quick"))
        assert ids(await drain(store)) == ["quick"]
    await add(store, row("k", event_id="k"))
    assert ids(await drained_by(store, 2)) == ["slow0", "slow1", "slow2", "k"]


async def test_a_backlog_leaves_for_later_what_commits_while_it_is_read(one_shard: PostgresStore) -> None:
    store = one_shard
    shards = await store.outbox.lease("a", 30)
    await add(store, *(row("k", event_id=f"early{number}") for number in range(2)))
    async with store.begin() as slow:
        await store.outbox.append(slow, [row("slow", event_id="slow")])
        await add(store, *(row("k", event_id=f"late{number}") for number in range(3)))
        poll = await store.outbox.poll(shards, 2)
        assert await store.outbox.settle("a", poll, [])
    assert ids(poll.rows) == ["early0", "early1"]
    assert ids(await drained_by(store, 2)) == ["late0", "late1", "late2", "slow"]


async def drained_by(store: PostgresStore, limit: int) -> list[OutboxRow]:
    """Everything in the shards of relay `a`, in pages of `limit`."""
    shards = await store.outbox.lease("a", 30)
    found: list[OutboxRow] = []
    while (poll := await store.outbox.poll(shards, limit)).rows:
        found += poll.rows
        assert await store.outbox.settle("a", poll, [])
    return found


async def test_a_backlog_that_its_relay_left_open_is_read_on_by_the_next(
    store: PostgresStore, other: PostgresStore
) -> None:
    await add(store, *(row("k", event_id=f"e{number}") for number in range(8)))
    shards = await store.outbox.lease("a", 30)
    poll = await store.outbox.poll(shards, 3)
    assert await store.outbox.settle("a", poll, [])
    unsettled = await store.outbox.poll(shards, 3)
    await store.outbox.release("a")
    assert ids(await drain(other, "b")) == ["e3", "e4", "e5", "e6", "e7"]
    assert not await store.outbox.settle("a", unsettled, [])
    assert (await store.counts()).committed == {TOPIC: 8}


async def test_every_shard_has_its_turn_while_one_has_a_backlog(store: PostgresStore) -> None:
    await add(store, *(row("busy") for _ in range(100)))
    await add(store, *(row(f"k{number}") for number in range(20)))
    shards = await store.outbox.lease("a", 30)
    seen: list[str | None] = []
    while (poll := await store.outbox.poll(shards, 5)).rows:
        assert len(poll.rows) <= 5
        seen += [found.key for found in poll.rows]
        assert await store.outbox.settle("a", poll, [])
    assert len(seen) == 120
    last_busy = max(place for place, key in enumerate(seen) if key == "busy")
    assert sum(key != "busy" for key in seen[:last_busy]) > 0


async def test_writers_of_every_kind_and_two_relays_lose_and_invert_nothing(
    store: PostgresStore, other: PostgresStore, postgres_url: str
) -> None:
    """Slow and quick writers, rollbacks, savepoints, a writer open all the time; pages of three; a relay that is fenced."""
    chance, keys = random.Random(7), [f"k{number}" for number in range(12)]
    done, committed = asyncio.Event(), defaultdict[str, list[int]](list)
    received: dict[str, list[int | None]] = defaultdict(list)

    async def write(worker: int) -> None:
        async with session(postgres_url) as connection:
            for number in range(25):
                transaction = connection.transaction()
                await transaction.start()
                joined, said = store.join(connection), sorted(chance.sample(keys, 2))
                await store.outbox.append(joined, [row(key, event_id=f"{worker}-{number}-{key}") for key in said])
                if chance.random() < 0.3:
                    with contextlib.suppress(ZeroDivisionError):
                        async with connection.transaction():
                            await store.outbox.append(joined, [row(said[-1])])
                            raise ZeroDivisionError
                await asyncio.sleep(chance.random() * (0.03 if worker < 4 else 0.002))
                if chance.random() < 0.1:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    for key in said:
                        committed[key].append(number)

    async def relay(at: PostgresStore, owner: str) -> None:
        while True:
            shards = await at.outbox.lease(owner, 5)
            last = done.is_set()
            for _ in range(20):
                poll = await at.outbox.poll(shards, 3)
                await asyncio.sleep(0)
                if await at.outbox.settle(owner, poll, []):
                    for found in poll.rows:
                        received[str(found.key)].append(found.sequence)
                if not poll.rows:
                    if last and not poll.more:
                        return
                    break

    async with session(postgres_url) as connection, connection.transaction():
        await store.outbox.append(store.join(connection), [row("open all the time")])
        relays = [asyncio.create_task(relay(store, "a")), asyncio.create_task(relay(other, "b"))]
        await asyncio.gather(*(write(worker) for worker in range(8)))
        done.set()
        await asyncio.gather(*relays)
        await store.outbox.release("b")
    for _ in range(2):
        for found in await drain(store, "a"):
            received[str(found.key)].append(found.sequence)
    assert received.pop("open all the time") == [1]
    assert {key: len(found) for key, found in received.items()} == {key: len(had) for key, had in committed.items()}
    for key, numbers in received.items():
        assert numbers == list(range(1, len(numbers) + 1)), key


# Guards


async def test_a_poll_inside_a_transaction_that_wrote_is_refused(store: PostgresStore) -> None:
    shards = await store.outbox.lease("a", 30)
    held = [shard.number for shard in shards], [shard.epoch for shard in shards], shards[0].run
    async with failing(store, StoreError()) as tx:
        await store.outbox.append(tx, [row("k")])
        with pytest.raises(StoreError, match="has written"):
            await tx.execute("SELECT * FROM posthouse.poll($1, $2, $3, 10, true, 0, NULL)", held)


async def test_tables_restored_elsewhere_are_noticed_and_everything_unsent_is_sent(store: PostgresStore) -> None:
    """As a dump restored into a server whose transaction ids are lower, and whose name is another."""
    await add(store, row("sent", event_id="sent"))
    await drain(store)
    shards = await store.outbox.lease("a", 30)
    poll = await with_refused_row(store, shards)
    assert poll.rows
    await add(store, row("k", event_id="unsent"))
    async with store.begin() as tx:
        await tx.execute("UPDATE posthouse.outbox SET xid = (xid::text::bigint + 1000000)::text::xid8")
        await tx.execute("UPDATE posthouse.shard SET s1 = '1000000:1000000:' WHERE s1::text <> '1:1:'")
        await tx.execute("UPDATE posthouse.meta SET system = 'another'")
    await add(store, row("k", event_id="new"))
    with pytest.raises(StoreUnavailable, match="next lease"):
        await store.outbox.poll(shards, 10)
    again = await store.outbox.lease("a", 30)
    assert all(new.epoch > old.epoch for new, old in zip(again, shards, strict=True))
    found = await drain(store)
    assert {"unsent", "new"} <= set(ids(found))
    assert [one.event_id for one in found if one.key == "k"] == ["unsent", "new"]
    assert [one.row.key for one in await store.outbox.stuck()] == ["bad"]
    await add(store, row("k"))
    assert [one.lineage for one in await drain(store)] == [2]


async def with_refused_row(store: PostgresStore, shards: Sequence[Any]) -> Poll:
    await add(store, row("bad"))
    poll = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", poll, [stuck(poll.rows[0], after=9e9)])
    return poll


async def test_a_promoted_server_gives_its_numbers_a_new_lineage(store: PostgresStore) -> None:
    await add(store, row("k"))
    await fetch(store, "UPDATE posthouse.meta SET timeline = '00000000' RETURNING 1")
    await add(store, row("k"), row("other"))
    await add(store, row("k"))
    found = await drain(store)
    assert [(one.key, one.sequence, one.lineage) for one in found] == [
        ("k", 1, 1),
        ("k", 2, 2),
        ("other", 1, 2),
        ("k", 3, 2),
    ]


async def test_ids_that_are_not_drawn_one_by_one_are_refused(store: PostgresStore, other: PostgresStore) -> None:
    async with store.begin() as tx:
        await tx.execute("ALTER SEQUENCE posthouse.outbox_id_seq CACHE 50")
    with pytest.raises(StoreError, match="CACHE is 50"):
        await add(other, row("k"))


async def test_tables_of_a_newer_release_are_refused(store: PostgresStore, other: PostgresStore) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO posthouse.migration (name) VALUES ('9999_future.post')")
    for attempt in (other.pending_migrations, other.upgrade, other.counts):
        with pytest.raises(StoreError, match="newer Posthouse"):
            await attempt()


# Leases by the database's clock


async def test_shards_are_taken_over_when_the_database_says_so(store: PostgresStore, other: PostgresStore) -> None:
    await other.outbox.lease("b", 30)
    await other.outbox.release("b")  # its connections are made
    before = await store.outbox.lease("a", 1.0)
    assert await other.outbox.lease("b", 30) == []
    after = await eventually(lambda: other.outbox.lease("b", 30))
    assert {shard.number for shard in after} == {shard.number for shard in before}


# Transactions


NASTY = "o'k\\ \u00e9 \n; COMMIT; --"
BODIES = (
    bytes(range(256)),
    bytes(byte for byte in range(1, 128) if byte != ord("\\")),
    b"\\x00 \\101 \\\\ \\'",
    b"a\x00b",
    "é".encode(),
    b"''; COMMIT; --",
    b"",
)


@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("body", BODIES)
async def test_a_last_row_goes_with_the_commit_as_it_is(store: PostgresStore, conforming: str, body: bytes) -> None:
    given = OutboxRow(topic=TOPIC, tenant=NASTY, event_id=NASTY, body=body, headers={"a": NASTY}, key=NASTY)
    said: list[str] = []
    async with store.begin() as tx:
        await tx.execute(f"SET LOCAL standard_conforming_strings = {conforming}")
        connection: Any = tx.connection
        connection.add_query_logger(lambda record: said.append(record.query))
        await store.outbox.append(tx, [given], with_commit=True)
        assert said == []
    assert said[0].endswith("; COMMIT")
    [found] = await drain(store)
    assert (found.tenant, found.event_id, found.headers, found.key) == (NASTY, NASTY, {"a": NASTY}, NASTY)
    assert (found.body, found.sequence) == (given.body, 1)


@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("body", BODIES)
async def test_a_last_row_that_has_its_number_goes_with_the_commit_too(
    store: PostgresStore, conforming: str, body: bytes
) -> None:
    given = OutboxRow(topic=TOPIC, tenant=NASTY, event_id=NASTY, body=body, headers={"a": NASTY}, key=NASTY)
    said: list[str] = []
    async with store.begin() as tx:
        await tx.execute(f"SET LOCAL standard_conforming_strings = {conforming}")
        connection: Any = tx.connection
        [number] = await store.outbox.number(tx, [given])
        connection.add_query_logger(lambda record: said.append(record.query))
        given = msgspec.structs.replace(given, sequence=number.sequence, lineage=number.lineage)
        await store.outbox.append(tx, [given], with_commit=True, numbered=True)
        assert said == []
    assert said[0].endswith("; COMMIT")
    [found] = await drain(store)
    assert (found.tenant, found.event_id, found.headers, found.key) == (NASTY, NASTY, {"a": NASTY}, NASTY)
    assert (found.body, found.sequence, found.lineage) == (body, 1, number.lineage)


async def test_a_last_row_without_a_key_goes_with_the_commit_too(store: PostgresStore) -> None:
    given = OutboxRow(topic=TOPIC, tenant="t1", event_id="e", body=b"{}", lineage=7)
    async with store.begin() as tx:
        await store.outbox.append(tx, [given], with_commit=True, numbered=True)
    [found] = await drain(store)
    assert (found.key, found.sequence, found.headers, found.lineage) == (None, None, {}, 7)


async def test_what_comes_after_a_last_row_finds_it_there(store: PostgresStore) -> None:
    async with store.begin() as tx:
        await tx.execute("SELECT 1")
        await store.outbox.append(tx, [row("k", event_id="first")], with_commit=True)
        await store.outbox.append(tx, [row("k", event_id="second")], with_commit=True)
        assert (await tx.execute("SELECT count(*) FROM posthouse.outbox")).scalar() == 2
    assert ids(await drain(store)) == ["first", "second"]


async def test_a_last_row_of_a_transaction_that_has_run_nothing_is_committed(store: PostgresStore) -> None:
    async with store.begin(lazily=True) as tx:
        await tx.execute("SELECT 1")
        await store.outbox.append(tx, [row("k", event_id="e")], with_commit=True)
    assert ids(await drain(store)) == ["e"]


async def test_a_last_row_that_is_refused_takes_the_transaction_with_it(store: PostgresStore) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name text)")
        await tx.execute("ALTER TABLE posthouse.outbox ADD CONSTRAINT short CHECK (length(event_id) < 10)")

    async def commit() -> None:
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine VALUES ('a')")
            await store.outbox.append(tx, [row("k", event_id="much too long")], with_commit=True)

    with pytest.raises(StoreError, match="short"):
        await commit()
    assert await fetch(store, "SELECT count(*) FROM mine") == 0, "and the connection is in no transaction any more"
    await add(store, row("k", event_id="e"))
    [found] = await drain(store)
    assert (found.event_id, found.sequence) == ("e", 1)


async def test_an_answer_to_a_commit_that_never_came_is_unknown(store: PostgresStore, postgres_url: str) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name text)")
        await tx.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'"
        )
        await tx.execute(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            "EXECUTE FUNCTION slow()"
        )

    async def commit() -> None:
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine VALUES ('a')")

    committing = asyncio.create_task(commit())
    async with session(postgres_url) as connection:
        await eventually(
            lambda: connection.fetchval(
                "SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND "
                "datname = current_database() AND state = 'active'"
            )
        )
    with pytest.raises(CommitUnknown):
        await committing
    assert await fetch(store, "SELECT count(*) FROM mine") == 0


async def test_an_error_that_was_passed_over_is_not_a_commit(store: PostgresStore) -> None:
    async def pass_over() -> None:
        async with store.begin() as tx:
            await store.outbox.append(tx, [row("k")])
            with contextlib.suppress(StoreError):
                await tx.execute("SELECT 1 / 0")

    with pytest.raises(StoreError, match="rolled everything back"):
        await pass_over()
    assert await drain(store) == []


async def test_a_statement_of_a_handler_that_was_given_up_is_ended(store: PostgresStore, postgres_url: str) -> None:
    at_work = (
        "SELECT count(*) = $1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active' AND "
        "datname = current_database()"
    )
    async with session(postgres_url) as connection:
        async with failing(store, DeadlineExceeded("too slow")) as tx:
            asleep = asyncio.ensure_future(tx.execute("SELECT pg_sleep(60)"))
            await eventually(lambda: connection.fetchval(at_work, 1))
        with pytest.raises(StoreError):
            await asleep
        await eventually(lambda: connection.fetchval(at_work, 0))


@pytest.mark.parametrize(
    "leaves", ["SET work_mem = '1MB'", "SELECT set_config('work_mem', '1MB', false)", "LISTEN hello"]
)
async def test_what_a_handler_leaves_in_its_session_is_gone(postgres_url: str, leaves: str) -> None:
    store = PostgresStore(postgres_url, writers=1)
    await store.upgrade()
    async with store.begin() as tx:
        before = (await tx.execute("SHOW work_mem")).scalar()
    for _ in range(10):
        async with store.begin() as tx:
            assert (await tx.execute("SHOW work_mem")).scalar() == before
            assert await tx.execute("SELECT pg_listening_channels()") == []
            await tx.execute(leaves)
    await store.aclose()


async def test_transactions_that_ask_the_store_something_never_lock_up(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, writers=3, patience=10)
    await store.upgrade()
    inside = asyncio.Barrier(3)

    async def work() -> None:
        async with store.begin():
            await inside.wait()  # every transaction is open now
            assert await store.inbox.purged_until(CONSUMER) is None

    async with asyncio.timeout(10):
        await asyncio.gather(*(work() for _ in range(9)))
    await store.aclose()


async def test_waiting_for_a_transaction_ends_with_a_sentence(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, writers=1, patience=0.2)
    await store.upgrade()
    async with store.begin():
        with pytest.raises(StoreUnavailable, match="raise `writers`"):
            async with store.begin():
                pass
    await store.aclose()


async def test_a_server_that_is_away_is_unavailable() -> None:
    store = PostgresStore("postgresql://postgres@127.0.0.1:1/nowhere", patience=1)
    with pytest.raises(StoreUnavailable):
        await store.pending_migrations()
    with pytest.raises(StoreUnavailable):
        await store.outbox.lease("a", 10)
    await store.aclose()


async def test_a_connection_that_the_server_cut_is_replaced(store: PostgresStore, postgres_url: str) -> None:
    await add(store, row("k"))
    async with session(postgres_url) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
            "pid <> pg_backend_pid()"
        )

    async def added() -> int:
        with contextlib.suppress(StoreUnavailable):
            return await add(store, row("k"))
        return 0

    await eventually(added)
    assert [found.sequence for found in await drain(store)] == [1, 2]


# Races between consumers, which SQLite's one writer makes impossible


async def test_a_number_that_is_applied_while_it_is_being_held_is_not_held(
    store: PostgresStore, other: PostgresStore
) -> None:
    async with store.begin() as tx:
        assert await store.inbox.position_of(tx, CONSUMER, entry(1)) is None
        assert await claim(other, entry(1))
        assert not await store.held.hold(tx, held(entry(1), "retrying"))
    assert await claim(store, entry(2))


async def test_a_gap_that_closes_while_it_is_being_held_is_due_at_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    async with store.begin() as tx:
        assert await store.inbox.position_of(tx, CONSUMER, entry(2)) is None
        assert await claim(other, entry(1))
        assert await store.held.hold(tx, held(entry(2), "gap"))
    [found] = await store.held.find(HeldFilter())
    assert found.state == "retrying"
    assert len(await store.held.claim_due(CONSUMER, 10, 30)) == 1


async def test_where_a_key_stands_stays_true_until_the_transaction_ends(
    store: PostgresStore, other: PostgresStore
) -> None:
    await claim(store, entry(1))
    async with store.begin() as tx:
        await store.inbox.position_of(tx, CONSUMER, entry(3))
        claiming = asyncio.create_task(claim(other, entry(2)))
        await asyncio.wait({claiming}, timeout=0.1)
        assert not claiming.done()
        await store.held.hold(tx, held(entry(3), "gap"))
    assert not await claiming, "something is held now, so the one who has it must promote what waits"
    assert (await standing(store, entry(2))).waiting == 3


async def test_two_workers_claim_one_event_once(store: PostgresStore, other: PostgresStore) -> None:
    for one in (entry(1), entry(None)):
        assert sorted(await asyncio.gather(claim(store, one), claim(other, one))) == [False, True]
    assert (await store.counts()).applied == {(CONSUMER, TOPIC): 2}


async def test_the_tally_is_summed_up_and_stays_the_same(store: PostgresStore) -> None:
    for number in range(1, 6):
        await claim(store, entry(number))
    await store.inbox.purge(1e9, 3)
    assert (await store.counts()).applied == {(CONSUMER, TOPIC): 5}
    assert await fetch(store, "SELECT count(*) FROM posthouse.applied_count") == 0, "batch by batch, until none is left"
    await hold(store, held(entry(7), "gap"))
    await store.inbox.purge(1e9, 3)
    assert (await store.counts()).applied == {(CONSUMER, TOPIC): 5}

"""Streams on a real server: writers that really meet, connections that die in the middle, readers that skip nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import asyncpg
import pytest

from posthouse import Event, Payload, Policy, Tx
from posthouse.clock import new_id
from posthouse.errors import ConfigurationError, StoreError, StoreUnavailable, VersionConflict
from posthouse.events import decode_any
from posthouse.processes import Conflicts
from posthouse.processes.stream import STREAM_VERSION
from posthouse.store import Store, Transaction
from posthouse.store.streams import Stream, StreamEvent
from posthouse.stores.postgres import PostgresStore, streams
from posthouse.stores.postgres.history import BODY, FRESH, OPEN, PAGE, PINNED, WHOLE
from posthouse.testing.store_contract.steps import drain
from posthouse.testing.store_contract.streams import FOLIO, append, everything, facts, versions
from tests.integration.test_postgres_restore import moved, spend
from tests.kit.servers.postgres import Unavailable, binaries, give_up, running
from tests.kit.servers.roles import Ground
from tests.kit.waiting import eventually
from tests.unit.processes.stream.folios import Billing, Charged, Folio, charging, opening

# Events whose transactions have not begun yet, as far as this server knows.
FROM_THE_FUTURE = """
SELECT count(*) FROM posthouse.stream_event WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
"""


async def waiting(store: Store) -> None:
    """Until somebody waits for somebody else's lock."""

    async def blocked() -> bool:
        async with store.begin() as tx:
            sql = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool((await tx.execute(sql)).scalar())

    await eventually(blocked, "a wait for a lock")


class Writer:
    """A transaction that is held open while others go on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> Transaction:
        self.tx = await self._stack.enter_async_context(self.store.begin())
        return self.tx

    async def append(self, *events: StreamEvent) -> None:
        await self.store.streams.append(self.tx, events)

    async def commit(self) -> None:
        await self._stack.aclose()

    async def roll_back(self) -> None:
        error = ZeroDivisionError()
        with contextlib.suppress(ZeroDivisionError):
            await self._stack.__aexit__(type(error), error, None)


# Writers that meet.


@pytest.mark.parametrize("there", [0, 3])
async def test_of_two_writers_at_one_version_the_first_wins_and_the_other_is_told_by_how_much(
    store: PostgresStore, other: PostgresStore, there: int
) -> None:
    await append(store, *facts(there))
    first, second = Writer(store), Writer(other)
    await first.begin()
    await second.begin()
    await first.append(*facts(2, after=there))
    trying = asyncio.create_task(second.append(*facts(1, after=there)))
    await waiting(store)
    assert not trying.done()
    await first.commit()
    with pytest.raises(VersionConflict) as raised:
        await trying
    assert (raised.value.expected, raised.value.found) == (there, there + 2)
    await second.append(*facts(1, after=there + 2))
    await second.commit()
    assert await versions(store) == list(range(1, there + 4))


@pytest.mark.parametrize("there", [0, 3])
async def test_where_the_first_writer_rolls_back_the_other_goes_on(
    store: PostgresStore, other: PostgresStore, there: int
) -> None:
    await append(store, *facts(there))
    first, second = Writer(store), Writer(other)
    await first.begin()
    await second.begin()
    await first.append(*facts(2, after=there))
    trying = asyncio.create_task(second.append(*facts(1, after=there)))
    await waiting(store)
    await first.roll_back()
    await trying
    await second.commit()
    assert await versions(store) == list(range(1, there + 2))


async def test_who_holds_a_stream_is_overtaken_by_nobody(store: PostgresStore, other: PostgresStore) -> None:
    await append(store, *facts(1))
    first, second = Writer(store), Writer(other)
    await first.begin()
    await second.begin()
    assert await store.streams.version(first.tx, FOLIO, hold=True) == 1
    trying = asyncio.create_task(second.append(*facts(1, after=1)))
    await waiting(store)
    await first.append(*facts(1, after=1))
    await first.commit()
    with pytest.raises(VersionConflict):
        await trying
    await second.commit()


async def test_any_version_will_do_also_for_a_stream_that_somebody_else_is_making(postgres_url: str) -> None:
    billing, rival = Billing(store=postgres_url), PostgresStore(postgres_url)
    await rival.upgrade()
    first = Writer(rival)
    await first.begin()
    await first.append(*facts(1, type="billing.folio.opened.v1", body=b"{}"))

    async def charge() -> int:
        async with billing.service.transaction("t1") as tx:
            return await billing.folios.append(tx, "f1", [Charged("f1", 1)], expected="any")

    trying = asyncio.create_task(charge())
    await waiting(rival)
    await first.commit()
    assert await trying == 2
    last = (await everything(rival))[0][-1]
    assert decode_any(last.headers, last.body).extensions[STREAM_VERSION] == "2"
    await billing.service.aclose()
    await rival.aclose()


async def test_decisions_of_two_processes_at_once_are_all_made_and_published_in_the_order_of_the_stream(
    store: PostgresStore, postgres_url: str
) -> None:
    conflicts = Conflicts(attempts=20, first_pause=0.001, last_pause=0.05)
    here = Billing(store=postgres_url, snapshot_every=10, conflicts=conflicts)
    there = Billing(store=postgres_url, snapshot_every=10, conflicts=conflicts)
    made = 0

    def charge(folio: Folio) -> Charged:
        nonlocal made
        made += 1
        return charging(len(folio.charges))(folio)

    await here.folios.execute("f1", opening, tenant="t1")
    await asyncio.gather(*((here, there)[n % 2].folios.execute("f1", charge, tenant="t1") for n in range(40)))
    assert made > 40  # some were overtaken
    async with there.service.transaction("t1") as tx:
        loaded = await there.folios.load(tx, "f1")
    assert loaded.version == 41
    assert loaded.state.charges == tuple(range(40))
    published = [decode_any(row.headers, row.body).extensions[STREAM_VERSION] for row in await drain(store)]
    assert published == [str(version) for version in range(1, 42)]
    await here.service.aclose()
    await there.service.aclose()


async def test_handlers_that_meet_at_one_stream_run_again_and_none_is_held(
    store: PostgresStore, postgres_url: str
) -> None:
    billing = Billing(store=postgres_url)
    runs = 0

    @billing.service.event("payment.asked.v1", key="payment_id")
    class Asked(Payload):
        payment_id: str

    both = asyncio.Barrier(2)

    @billing.service.on(Asked, policy=Policy(max_attempts=1))
    async def charge(event: Event[Asked], tx: Tx) -> None:
        nonlocal runs
        runs += 1
        loaded = await billing.folios.load(tx, "f1")
        if runs <= 2:
            await both.wait()  # both have loaded the same version
        await billing.folios.append(tx, "f1", [Charged("f1", 5)], expected=loaded.version)

    async with billing.service.running():
        for number in range(2):
            async with billing.service.transaction("t1") as tx:
                tx.publish(Asked(f"p{number}"))

        async def charged() -> bool:
            async with billing.service.transaction("t1") as tx:
                return (await billing.folios.load(tx, "f1")).version == 2

        await eventually(charged, "both charges")
        assert (await store.counts()).held == {}
    assert runs == 3


# One transaction.


async def test_a_connection_that_dies_behind_the_append_leaves_neither_stream_nor_event(
    store: PostgresStore, postgres_url: str
) -> None:
    billing = Billing(store=postgres_url, snapshot_every=1)

    async def append_and_die() -> None:
        async with billing.service.transaction("t1") as tx:
            await billing.folios.decide(tx, "f1", opening)
            process = (await tx.execute("SELECT pg_backend_pid()")).scalar()
            async with store.begin() as killer:
                await killer.execute("SELECT pg_terminate_backend($1)", (process,))
            await eventually(partial(ended, store, process), "the end of the session")

    with pytest.raises(StoreError):
        await append_and_die()
    assert await versions(store) == []
    assert (await everything(store))[0] == []
    assert await drain(store) == []
    assert await store.streams.drop_snapshots() == 0
    await billing.folios.execute("f1", opening, tenant="t1")
    assert [len(await versions(store)), len(await drain(store))] == [1, 1]
    await billing.service.aclose()


async def ended(store: Store, process: object) -> bool:
    async with store.begin() as tx:
        return not await tx.execute("SELECT 1 FROM pg_stat_activity WHERE pid = $1", (process,))


# Readers of everything.


async def test_a_late_commit_is_not_skipped(store: PostgresStore, other: PostgresStore) -> None:
    late, early = Stream("t1", "folio", "late"), Stream("t1", "folio", "early")
    slow = Writer(other)
    await slow.begin()
    await slow.append(*facts(2, stream=late))
    await append(store, *facts(1, stream=early))
    found, cursor = await everything(store)
    assert [event.stream for event in found] == ["early"]
    page = await store.streams.read_all(cursor)
    assert page.events == []
    await slow.commit()
    found, cursor = await everything(store, page.cursor)
    assert [(event.stream, event.version) for event in found] == [("late", 1), ("late", 2)]
    assert (await everything(store, cursor))[0] == []


async def test_a_stream_is_in_order_also_where_the_later_event_has_the_earlier_transaction(
    store: PostgresStore, other: PostgresStore
) -> None:
    old = Writer(other)
    await old.begin()
    await old.append(*facts(1, stream=Stream("t1", "folio", "first")))  # its transaction has a number from here on
    await append(store, *facts(1))
    seen, cursor = await everything(store)
    await old.append(*facts(1, after=1))
    await old.commit()
    rest, _ = await everything(store, cursor)
    assert [event.version for event in (*seen, *rest) if event.name == FOLIO] == [1, 2]
    assert [event.version for event in (await everything(store))[0] if event.name == FOLIO] == [1, 2]


async def test_what_commits_while_a_window_is_read_comes_behind_it(store: PostgresStore, other: PostgresStore) -> None:
    below, between = Writer(other), Writer(other)
    for writer in (below, between):
        await writer.begin()
    await below.append(*facts(1, stream=Stream("t1", "folio", "below")))
    await append(store, *facts(5))
    await between.append(*facts(1, stream=Stream("t1", "folio", "between")))
    await append(store, *facts(1, after=5))
    page = await store.streams.read_all(limit=4)
    assert [event.version for event in page.events] == [1, 2, 3, 4]
    await below.commit()
    await between.commit()
    await append(store, *facts(1, after=6))
    rest, _ = await everything(store, page.cursor, limit=4)
    found = [(event.stream, event.version) for event in rest]
    assert found == [("f1", 5), ("f1", 6), ("below", 1), ("between", 1), ("f1", 7)]


async def test_readers_among_writers_that_take_their_time_get_everything_once_and_in_order(
    store: PostgresStore, other: PostgresStore
) -> None:
    chance = random.Random(7)
    streams = [Stream("t1", "folio", f"f{number}") for number in range(6)]
    committed: dict[Stream, int] = defaultdict(int)
    done = asyncio.Event()

    async def write(mine: Store) -> None:
        for _ in range(25):
            stream, many = chance.choice(streams), chance.randint(1, 3)
            with contextlib.suppress(VersionConflict, ZeroDivisionError):
                async with mine.begin() as tx:
                    await tx.execute("SELECT pg_current_xact_id()")
                    version = await mine.streams.version(tx, stream)
                    await asyncio.sleep(chance.random() * 0.01)
                    await mine.streams.append(tx, facts(many, stream=stream, after=version))
                    await asyncio.sleep(chance.random() * 0.03)
                    if chance.random() < 0.1:
                        raise ZeroDivisionError
                committed[stream] += many

    async def read(limit: int) -> list[StreamEvent]:
        found: list[StreamEvent] = []
        cursor = ""
        while True:
            last = done.is_set()
            events, cursor = await everything(store, cursor, limit=limit)
            found += events
            if last:
                return found

    readers = [asyncio.create_task(read(limit)) for limit in (1, 3, 1000)]
    await asyncio.gather(*(write((store, other)[number % 2]) for number in range(8)))
    done.set()
    assert sum(committed.values()) > 100
    for found in await asyncio.gather(*readers):
        for stream in streams:
            expected = list(range(1, committed[stream] + 1))
            assert [event.version for event in found if event.name == stream] == expected


async def test_a_cursor_is_refused_if_it_is_none(store: PostgresStore) -> None:
    for text in ("17", "a|b|c|d|e"):
        with pytest.raises(StoreError, match="is not a cursor of this store"):
            await store.streams.read_all(text)


async def test_a_cursor_from_before_a_restore_is_refused_and_everything_can_be_read_anew() -> None:
    try:
        tools = binaries()
    except Unavailable as error:
        give_up(f"no tools to dump and restore with: {error}")
    with running(tools) as old_url, running(tools) as new_url:
        old = PostgresStore(old_url)
        await old.upgrade()
        await spend(old_url)
        for version in range(200):
            await append(old, *facts(1, after=version))
        _, cursor = await everything(old)
        await old.aclose()
        moved(tools, old_url, new_url)

        new = PostgresStore(new_url)
        await append(new, *facts(1, after=200))
        async with new.begin() as tx:
            assert (await tx.execute(FROM_THE_FUTURE)).scalar() == 200
        with pytest.raises(StoreUnavailable, match="restored from a dump"):
            await new.streams.read_all(cursor)
        await new.outbox.lease("a", 10)
        with pytest.raises(StoreError, match="begin again"):
            await new.streams.read_all(cursor)
        await append(new, *facts(1, after=201))
        found, cursor = await everything(new, limit=50)
        assert [event.version for event in found] == list(range(1, 203))
        await append(new, *facts(1, after=202))
        assert [event.version for event in (await everything(new, cursor))[0]] == [203]
        await new.aclose()


async def test_no_page_reads_more_than_itself_whatever_the_planner_believes(
    store: PostgresStore, postgres_url: str
) -> None:
    """Nobody has analysed the table since it was empty."""
    first, cursor = await everything(store)
    connection = await asyncpg.connect(postgres_url)
    page = PAGE.format(columns=WHOLE, fresh=FRESH, typed="", limit="$5")
    bodies = PAGE.format(columns=BODY.format(headers="$5"), fresh=FRESH, typed="", limit="$6")
    await connection.execute("ANALYZE posthouse.stream_event")
    await append(store, *facts(3_000))
    async with connection.transaction():
        await connection.execute(PINNED)
        s1, s2 = "1:1:", (await connection.fetchval("SELECT pg_current_snapshot()::text"))
        for plan in (
            await explained(connection, page, 1, 10, s2, s1, 5),
            await explained(connection, bodies, 1, 10, s2, s1, "{}", 5),
        ):
            assert "stream_event_by_position" in plan
            assert "stream_archive_by_position" in plan
            assert "Merge Append" in plan
            assert "Sort  (" not in plan, plan
        plan = await explained(connection, OPEN, s2, s2)
        assert "stream_event_by_transaction" in plan
        plan = await explained(connection, streams.READ, "t1", "folio", "f1", 5, 10)
        assert "stream_event_pkey" in plan
        assert "stream_archive_pkey" in plan
    await connection.close()
    assert first == []
    assert len((await everything(store, cursor, limit=700))[0]) == 3_000


async def explained(connection: asyncpg.Connection[asyncpg.Record], sql: str, *parameters: object) -> str:
    rows: Sequence[asyncpg.Record] = await connection.fetch(f"EXPLAIN {sql}", *parameters)
    return "\n".join(row[0] for row in rows)


# Tenants that are kept apart.


async def test_an_application_sees_and_writes_the_streams_of_its_tenant_only(ground: Ground) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    theirs = Stream("t2", "folio", "f1")
    async with store.begin(tenant="t1") as tx:
        await store.streams.append(tx, facts(2))
    async with store.begin(tenant="t2") as tx:
        assert await store.streams.read(tx, FOLIO) == []
        assert await store.streams.version(tx, FOLIO) == 0
        await store.streams.append(tx, facts(1, stream=theirs))
    for events in (facts(1, after=2), facts(1, stream=Stream("t1", "folio", new_id()))):
        with pytest.raises((ConfigurationError, VersionConflict)):
            async with store.begin(tenant="t2") as tx:
                await store.streams.append(tx, events)
    async with store.begin(tenant="t2") as tx:
        assert await store.streams.head(tx, FOLIO, hold=True) is None
        for verb in (store.streams.archive, store.streams.delete, store.streams.reopen):
            await verb(tx, FOLIO)
    found, _ = await everything(store)
    assert [(event.tenant, event.version) for event in found] == [("t1", 1), ("t1", 2), ("t2", 1)]
    async with store.begin(tenant="t1") as tx:
        await store.streams.archive(tx, FOLIO)
    async with store.begin(tenant="t2") as tx:
        assert await store.streams.read(tx, FOLIO) == []
        await store.streams.delete(tx, FOLIO)
    async with store.begin(tenant="t1") as tx:
        assert len(await store.streams.read(tx, FOLIO)) == 2
        await store.streams.delete(tx, FOLIO)
        assert [event.version for event in await store.streams.read(tx, FOLIO)] == [2]
    await store.aclose()

"""A dump restored into another server, whose transaction ids mean nothing to the cursors in it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import OutboxRow
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add, drain
from tests.kit.servers.postgres import PostgresServer, Unavailable, binaries, give_up, running

# More transactions than a new server will have seen.
SPEND = "DO $$ BEGIN FOR n IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"

# Rows whose transactions have not begun yet, as far as this server knows.
FROM_THE_FUTURE = "SELECT count(*) FROM posthouse.outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"


async def spend(url: str) -> None:
    """Let transactions come and go, so that their numbers mean nothing on a new server."""
    connection = await asyncpg.connect(url)
    await connection.execute(SPEND)
    await connection.close()


def moved(tools: Path, source: str, target: str) -> None:
    """What `pg_dump | psql` does."""
    dump = subprocess.run([str(tools / "pg_dump"), source], capture_output=True, check=True).stdout
    command = [str(tools / "psql"), "--quiet", "--set", "ON_ERROR_STOP=1", target]
    subprocess.run(command, input=dump, capture_output=True, check=True)


async def test_after_a_restore_nothing_is_lost_or_out_of_order() -> None:
    try:
        tools = binaries()
    except Unavailable as error:
        give_up(f"no tools to dump and restore with: {error}")
    with running(tools) as old_url, running(tools) as new_url:
        old = PostgresStore(old_url)
        await old.upgrade()
        await spend(old_url)
        for number in range(200):
            await add(old, row(f"k{number % 5}", event_id=f"sent{number}"))
        assert len(await drain(old)) == 200
        for number in range(20):
            await add(old, row(f"k{number % 5}", event_id=f"pending{number}"))
        shards = await old.outbox.lease("a", 600)
        await old.aclose()
        moved(tools, old_url, new_url)

        new = PostgresStore(new_url)
        async with new.begin() as tx:
            assert int(str((await tx.execute(FROM_THE_FUTURE)).scalar())) >= 20
        for number in range(20):
            await add(new, row(f"k{number % 5}", event_id=f"new{number}"))
        with pytest.raises(StoreUnavailable, match="next lease"):
            await new.outbox.poll(shards, 100)
        found = await drain(new, "a")
        await new.aclose()
    said = [one.event_id for one in found]
    assert len(said) == len(set(said))
    assert {f"pending{number}" for number in range(20)} | {f"new{number}" for number in range(20)} <= set(said)
    for key in {one.key for one in found}:
        numbers = [one.sequence or 0 for one in found if one.key == key]
        assert numbers == sorted(numbers)


async def test_a_dump_brings_no_run_with_it_even_into_the_same_server(postgres_server: PostgresServer) -> None:
    """The row of the unlogged table comes along; what it says does not hold where it was not written."""
    try:
        tools = binaries()
    except Unavailable as error:
        give_up(f"no tools to dump and restore with: {error}")
    with postgres_server.database() as old_url, postgres_server.database() as new_url:
        old, new = PostgresStore(old_url), PostgresStore(new_url)
        await old.upgrade()
        shards = await old.outbox.lease("a", 600)
        await add(old, *(row("k", event_id=f"e{number}") for number in range(5)))
        assert len((await old.outbox.poll(shards, 10)).rows) == 5
        moved(tools, old_url, new_url)
        async with new.begin() as tx:
            assert int(str((await tx.execute("SELECT count(*) FROM posthouse.incarnation")).scalar())) == 1
        with pytest.raises(StoreUnavailable, match="another run"):
            await new.outbox.poll(shards, 10)
        assert [one.event_id for one in await drain(new)] == [f"e{number}" for number in range(5)]
        await old.aclose()
        await new.aclose()


async def test_what_is_said_in_a_restored_dump_before_a_relay_comes_has_a_lineage_of_its_own(
    postgres_server: PostgresServer,
) -> None:
    """The numbers behind the dump were given before: whoever speaks first gives them again."""
    try:
        tools = binaries()
    except Unavailable as error:
        give_up(f"no tools to dump and restore with: {error}")
    with postgres_server.database() as old_url, postgres_server.database() as new_url:
        old, new, other = PostgresStore(old_url), PostgresStore(new_url), PostgresStore(new_url)
        await old.upgrade()
        await add(old, row("k", event_id="before"))
        moved(tools, old_url, new_url)
        await add(new, row("k", event_id="first"))
        await add(other, row("k", event_id="second"), row("k", event_id="third"))
        found = await drain(new)
        await add(new, row("k", event_id="last"))
        found += await drain(new)
        for store in (old, new, other):
            await store.aclose()
    assert [one.event_id for one in found] == ["before", "first", "second", "third", "last"]
    assert [one.sequence for one in found] == [1, 2, 3, 4, 5]
    before, first, second, third, last = (one.lineage for one in found)
    assert before < first == second == third <= last


async def say_in_a_savepoint(url: str, store: PostgresStore, *rows: OutboxRow) -> None:
    """As a nested atomic() does: the rows are written by another transaction id than the one they name."""
    connection = await asyncpg.connect(url)
    async with connection.transaction(), connection.transaction():
        await store.outbox.append(store.join(connection), rows)
    await connection.close()


async def test_a_server_that_was_upgraded_in_place_counts_as_before(postgres_url: str) -> None:
    """pg_upgrade keeps rows and transaction ids, and gives the server another identity."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await add(store, *(row("k", event_id=f"e{number}") for number in range(20)))
    assert len(await drain(store)) == 20
    async with store.begin() as tx:
        await tx.execute("UPDATE posthouse.meta SET system = 'the one before'")
    await drain(store, "b")
    assert sum((await store.counts()).committed.values()) == 20
    await store.aclose()


async def test_what_is_sent_again_after_a_restore_counts_as_one_commit(postgres_server: PostgresServer) -> None:
    """Once noticed by a relay, once said by an operator; into the same server, and into another with ids of its own."""
    try:
        tools = binaries()
    except Unavailable as error:
        give_up(f"no tools to dump and restore with: {error}")
    with postgres_server.database() as old_url, postgres_server.database() as near_url, running(tools) as far_url:
        old = PostgresStore(old_url)
        await old.upgrade()
        await spend(old_url)
        await add(old, *(row(f"k{number % 5}", event_id=f"sent{number}") for number in range(30)))
        assert len(await drain(old)) == 30
        await add(old, *(row(f"k{number % 5}", event_id=f"pending{number}") for number in range(7)))
        for url in (near_url, far_url):
            moved(tools, old_url, url)
            new = PostgresStore(url)
            await say_in_a_savepoint(
                url, new, row("k", event_id="new0"), row("k", event_id="new1")
            )  # before anybody notices
            await add(new, row("k", event_id="new2"))
            assert len(await drain(new)) >= 10
            assert sum((await new.counts()).committed.values()) == 40
            await new.restored()
            assert sum((await new.counts()).committed.values()) == 40
            await drain(new)
            assert sum((await new.counts()).committed.values()) == 40
            assert not (await new.counts()).unsent
            await new.aclose()
        await old.aclose()


@contextlib.asynccontextmanager
async def copied(url: str) -> AsyncIterator[str]:
    """The URL of a database made of this one, to which nobody is connected."""
    address, _, name = url.rpartition("/")
    connection = await asyncpg.connect(f"{address}/postgres")
    try:
        await connection.execute(f'CREATE DATABASE "{name}_copy" TEMPLATE "{name}"')
        yield f"{address}/{name}_copy"
    finally:
        await connection.execute(f'DROP DATABASE "{name}_copy" WITH (FORCE)')
        await connection.close()


async def test_a_database_made_of_another_is_not_taken_for_it(postgres_url: str) -> None:
    """CREATE DATABASE … TEMPLATE copies the files, also of unlogged tables, while the server goes on."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    shards = await store.outbox.lease("a", 600)
    await add(store, *(row("k", event_id=f"e{number}") for number in range(3)))
    await store.aclose()
    async with copied(postgres_url) as url:
        copy = PostgresStore(url)
        await add(copy, row("k", event_id="new"))
        with pytest.raises(StoreUnavailable, match="another run"):
            await copy.outbox.poll(shards, 10)
        found = await drain(copy)
        async with copy.begin() as tx:
            assert (await tx.execute("SELECT posthouse.at_home()")).scalar() is True
        await copy.aclose()
    assert [one.event_id for one in found] == ["e0", "e1", "e2", "new"]
    assert [one.lineage for one in found][-1] > found[0].lineage


async def test_the_first_lease_in_restored_tables_gives_way_to_whoever_writes(postgres_url: str) -> None:
    """It wants the outbox for itself, and a writer may wait for another one that would wait for it."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    async with copied(postgres_url) as url:
        copy = PostgresStore(url)
        await add(copy, row("a", event_id="before"))
        async with copy.begin() as tx:
            await copy.outbox.append(tx, [row("a", event_id="first")])
            with pytest.raises(StoreError, match="lock"):
                await copy.outbox.lease("a", 600)
            await add(copy, row("b", event_id="second"))
        found = await drain(copy, "a")
        await copy.aclose()
    assert sorted(one.event_id for one in found) == ["before", "first", "second"]

"""A block is committed whole or leaves nothing, and a commit is told to whoever waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from posthouse.errors import DeadlineExceeded, StoreError, TransactionClosed
from posthouse.store import Store, Transaction
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import TOPIC, row
from posthouse.testing.store_contract.steps import add, drain, failing


class TransactionContract(StoreFixtures):
    """What `Store.begin`, `Transaction` and `Store.changed` promise."""

    async def test_what_a_block_writes_is_committed_at_its_end(self, store: Store, other: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('kept')")
        assert await names(other) == ["kept"]

    async def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:
        await user_table(store)
        async with failing(store) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('lost')")
            await store.outbox.append(tx, [row("k")])
        assert await names(store) == []
        assert (await store.counts()).committed == {}

    async def test_rows_are_what_a_statement_returned(self, store: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            done = await tx.execute("INSERT INTO mine (name) VALUES ('a'), ('b')")
            assert done.rowcount == 2
            found = await tx.execute("SELECT name FROM mine ORDER BY name")
            assert found == [("a",), ("b",)]
            with pytest.raises(LookupError):
                found.one()

    async def test_names_and_a_mapping_are_parameters_on_every_store(self, store: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            for name in ("a", "it's :name", "b%"):
                done = await tx.execute("INSERT INTO mine (name) VALUES (:name) -- :remark", {"name": name})
                assert done.rowcount == 1
            like = "SELECT name FROM mine WHERE (name LIKE '%:na%' OR name = :name) AND NOT name = :other"
            assert await tx.execute(like, {"other": "b%", "name": "a"}) == [("a",), ("it's :name",)]
            assert await tx.execute("SELECT 1", {}) == [(1,)]

    async def test_names_that_do_not_fit_the_statement_are_refused(self, store: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            with pytest.raises(StoreError, match=r":nmae has no value\. Did you mean 'name'"):
                await tx.execute("INSERT INTO mine (name) VALUES (:nmae)", {"name": "a"})
            with pytest.raises(StoreError, match="'more' is not in the statement"):
                await tx.execute("INSERT INTO mine (name) VALUES (:name)", {"name": "a", "more": "b"})
            await tx.execute("INSERT INTO mine (name) VALUES (:name)", {"name": "kept"})
        assert await names(store) == ["kept"]

    async def test_a_transaction_is_closed_after_its_end(self, store: Store) -> None:
        async with store.begin() as tx:
            pass
        with pytest.raises(TransactionClosed):
            await tx.execute("SELECT 1")
        with pytest.raises(TransactionClosed):
            await store.outbox.append(tx, [row("k")])
        with pytest.raises(TransactionClosed):
            _ = tx.connection

    async def test_foreign_errors_never_escape(self, store: Store) -> None:
        with pytest.raises(StoreError):
            async with store.begin() as tx:
                await tx.execute("SELECT nonsense FROM nowhere")
        assert await add(store, row("k")) == 1

    @pytest.mark.parametrize("end", [DeadlineExceeded("too slow"), asyncio.CancelledError(), TimeoutError()])
    async def test_a_handler_that_lives_on_cannot_write(self, store: Store, end: BaseException) -> None:
        await user_table(store)
        kept: list[Transaction] = []
        async with failing(store, end) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('lost')")
            kept.append(tx)
        with pytest.raises(TransactionClosed):
            await kept[0].execute("INSERT INTO mine (name) VALUES ('late')")
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('next')")
        assert await names(store) == ["next"]

    async def test_a_lazy_transaction_is_one_from_its_first_statement_on(self, store: Store) -> None:
        await user_table(store)
        async with store.begin(lazily=True) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('kept')")
            await store.outbox.append(tx, [row("k")])
        async with failing(store, lazily=True) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('lost')")
        async with store.begin(lazily=True):
            pass
        assert await names(store) == ["kept"]
        assert (await store.counts()).committed == {TOPIC: 1}

    async def test_many_tasks_may_begin_at_once(self, store: Store, other: Store) -> None:
        await asyncio.gather(*(add((store, other)[n % 2], row("k")) for n in range(20)))
        assert [found.sequence for found in await drain(store)] == list(range(1, 21))

    # Wake-up

    async def test_changed_tells_of_a_commit_in_another_instance(self, store: Store, other: Store) -> None:
        seen = await store.changed(-1, 0)
        waiting = asyncio.create_task(store.changed(seen, 30))
        await add(other, row("k"))
        assert await asyncio.wait_for(waiting, 10) > seen

    async def test_changed_returns_when_its_time_is_over(self, store: Store) -> None:
        seen = await store.changed(-1, 0)
        for _ in range(50):  # somebody else on the same server may have committed something
            before, seen = seen, await asyncio.wait_for(store.changed(seen, 0.01), 10)
            if seen == before:
                return
        pytest.fail("it always changed")


async def user_table(store: Store) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name TEXT)")


async def names(store: Store) -> list[object]:
    async with store.begin() as tx:
        rows: Iterable[tuple[object, ...]] = await tx.execute("SELECT name FROM mine ORDER BY name")
    return [name for (name,) in rows]

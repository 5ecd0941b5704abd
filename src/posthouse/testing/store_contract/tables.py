"""Tables are made once, and a store without them says so."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from posthouse.errors import StoreOutdated
from posthouse.store import Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add


class TableContract(StoreFixtures):
    """Opening, upgrading and closing a store."""

    async def test_upgrade_makes_the_tables_once(self) -> None:
        store = await self.make_store()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.aclose)
            pending = await store.pending_migrations()
            assert pending
            assert await store.upgrade() == pending
            assert await store.pending_migrations() == []
            assert await store.upgrade() == []

    async def test_many_instances_may_upgrade_at_once(self) -> None:
        stores = [await self.make_store() for _ in range(4)]
        try:
            applied = await asyncio.gather(*(store.upgrade() for store in stores))
            names = [name for some in applied for name in some]
            assert len(names) == len(set(names)) > 0
            assert await add(stores[-1], row("k")) == 1
        finally:
            for store in stores:
                await store.aclose()

    async def test_a_store_without_tables_says_what_to_run(self) -> None:
        store = await self.make_store()
        try:
            with pytest.raises(StoreOutdated, match="posthouse db upgrade"):
                await add(store, row("k"))
        finally:
            await store.aclose()

    async def test_closing_twice_is_closing_once(self, store: Store) -> None:
        await store.aclose()
        await store.aclose()

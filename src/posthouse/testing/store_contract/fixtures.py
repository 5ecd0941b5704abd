"""What an adapter gives to the tests, and what the tests are given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.clock import ManualClock
from posthouse.store import Store


class StoreFixtures:
    """A clock that the tests move, and two stores on one database."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = ManualClock()

    async def make_store(self) -> Store:
        """A new instance on the one database of this test, as another process would open it; without tables at first."""
        raise NotImplementedError("give make_store()")

    async def later(self, seconds: float) -> None:
        """Let time pass on the store's clock."""
        self.clock.advance(seconds)

    @pytest_asyncio.fixture
    async def store(self) -> AsyncIterator[Store]:
        """A store with tables."""
        store = await self.make_store()
        await store.upgrade()
        yield store
        await store.aclose()

    @pytest_asyncio.fixture
    async def other(self, store: Store) -> AsyncIterator[Store]:
        """Another instance on the same database."""
        other = await self.make_store()
        yield other
        await other.aclose()

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse.clock import ManualClock
from posthouse.stores.sqlite import SqliteStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest_asyncio.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    """A store with a user's table, in a file and in memory."""
    place = path if request.param == "file" else ":memory:"
    store = SqliteStore(place, clock=clock, synchronous="NORMAL", patience=0.5)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name TEXT UNIQUE)")
    yield store
    await store.aclose()

from pathlib import Path

import pytest

from posthouse.store import Store
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract import StoreContract


class TestSqliteFile(StoreContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def make_store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock, synchronous="NORMAL")


class TestSqliteMemory(StoreContract):
    """A database in memory has one instance: the other one is the same."""

    only: SqliteStore | None = None

    async def make_store(self) -> Store:
        self.only = self.only or SqliteStore(":memory:", clock=self.clock)
        return self.only

import pytest

from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract import StoreContract


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def make_store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock)

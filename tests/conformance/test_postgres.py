from urllib.parse import urlsplit

import pytest

from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract import StoreContract
from tests.kit.servers.postgres import PostgresServer


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def make_store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock)


class TestPostgresBehindAPooler(StoreContract):
    """Each transaction may get another connection of PgBouncer's; a schema of another name."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str, pgbouncer: PostgresServer) -> None:
        self.url = pgbouncer.url_of(urlsplit(postgres_url).path.removeprefix("/"))

    async def make_store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock, pooler="transaction", schema="events")

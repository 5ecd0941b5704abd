from urllib.parse import urlsplit

import pytest

from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract import StoreContract
from posthouse.testing.store_contract.tables import TableContract
from tests.kit.servers.postgres import PostgresServer


def database_of(request: pytest.FixtureRequest) -> str:
    """With tables in it, but for the tests of making them."""
    makes_tables = request.function.__module__ == TableContract.__module__
    url: str = request.getfixturevalue("postgres_url" if makes_tables else "store_url")
    return url


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, request: pytest.FixtureRequest) -> None:
        self.url = database_of(request)

    async def make_store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock)


class TestPostgresBehindAPooler(StoreContract):
    """Each transaction may get another connection of PgBouncer's; a schema of another name."""

    schema = "events"

    @pytest.fixture(autouse=True)
    def _database(self, request: pytest.FixtureRequest, pgbouncer: PostgresServer) -> None:
        self.url = pgbouncer.url_of(urlsplit(database_of(request)).path.removeprefix("/"))

    async def make_store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock, pooler="transaction", schema=self.schema)

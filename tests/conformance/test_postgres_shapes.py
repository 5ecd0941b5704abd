"""The parts of the store's contract that write in a transaction, each begun on another library than asyncpg."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy.ext.asyncio import AsyncConnection

from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.handler_transaction import HandlerTransaction
from posthouse.stores.postgres.transaction import PostgresTransaction
from posthouse.testing.store_contract.held import HeldContract
from posthouse.testing.store_contract.inbox import InboxContract
from posthouse.testing.store_contract.streams import StreamContract
from posthouse.testing.store_contract.timers import TimerContract
from posthouse.testing.store_contract.transactions import TransactionContract
from tests.integration.django_site import django_on


class ShapedStore(PostgresStore):
    """Begins in one shape, whoever asks."""

    shape: type

    def begin(
        self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False
    ) -> PostgresTransaction | HandlerTransaction:
        return super().begin(self.shape, tenant=tenant, lazily=lazily)


class ShapedContract(TransactionContract, InboxContract, HeldContract, TimerContract, StreamContract):
    shape: type

    @pytest.fixture(autouse=True)
    def _database(self, store_url: str) -> Iterator[None]:
        self.url = store_url
        with django_on(store_url):
            yield

    async def make_store(self) -> Store:
        store = ShapedStore(self.url, clock=self.clock)
        store.shape = self.shape
        return store


class TestPsycopg(ShapedContract):
    shape = psycopg.Connection


class TestSqlalchemy(ShapedContract):
    shape = AsyncConnection


class TestDjango(ShapedContract):
    shape = BaseDatabaseWrapper

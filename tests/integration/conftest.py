"""A PostgreSQL store with its tables, and a second one on the same database."""

from collections.abc import AsyncIterator

import pytest_asyncio

from posthouse.stores.postgres import PostgresStore


@pytest_asyncio.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    yield store
    await store.aclose()


@pytest_asyncio.fixture
async def other(postgres_url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(postgres_url)
    yield other
    await other.aclose()

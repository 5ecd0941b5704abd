"""A PostgreSQL for the benchmarks: the one that POSTHOUSE_BENCH_POSTGRES names, or one made here for this run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
from psycopg import sql

from benchmarks.postgres.shop import CREATE
from posthouse.clock import new_id
from posthouse.stores.postgres import PostgresStore
from tests.servers.postgres import SETTINGS, PostgresServer, binaries, running

TUNED = {**SETTINGS, "shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
"""Every commit is synced. No checkpoint falls into one round and not into the other."""

# A copy knows that it is one, and would send everything again under a new lineage.
AT_HOME = "UPDATE posthouse.meta SET database = (SELECT oid FROM pg_database WHERE datname = current_database())"


class BenchServer(PostgresServer):
    """A server whose databases are copies of one that has the tables of the store and of the shop."""

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[str]:
        """A new database with all tables, on a server that has just written everything to disk; its URL."""
        with self.database() as url:
            store = PostgresStore(url)
            await store.upgrade()
            await store.aclose()
            await run(url, CREATE)
            await run(url, "CHECKPOINT")
            yield url

    @contextlib.contextmanager
    def copied(self, original: str) -> Iterator[str]:
        """A copy of a database that nobody is connected to; its URL."""
        name, source = f"bench_{new_id().replace('-', '')}", original.rpartition("/")[2]
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source)))
        try:
            with psycopg.connect(self.url_of(name), autocommit=True) as connection:
                connection.execute(AT_HOME)
            self.execute(sql.SQL("CHECKPOINT").format())
            yield self.url_of(name)
        finally:
            self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def serving() -> Iterator[BenchServer]:
    """One server for the whole run."""
    given = os.environ.get("POSTHOUSE_BENCH_POSTGRES")
    if given:
        yield BenchServer(given)
        return
    with running(binaries(), TUNED) as url:
        yield BenchServer(url)


async def run(url: str, statement: str) -> None:
    """One statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()

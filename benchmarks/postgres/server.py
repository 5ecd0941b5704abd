"""A PostgreSQL for the benchmarks: the one that POSTHOUSE_BENCH_POSTGRES names, or one made here for this run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence

import asyncpg
from psycopg import sql

from benchmarks.postgres.shop import CREATE
from posthouse.stores.postgres import PostgresStore
from tests.kit.servers.postgres import SETTINGS, PostgresServer, binaries, running

TUNED = {**SETTINGS, "shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
"""Every commit is synced. No checkpoint falls into one round and not into the other."""


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
    def copied(self, original: str, schemas: Sequence[str] = ("posthouse",)) -> Iterator[str]:
        """Of which everything is on the disk."""
        with super().copied(original, schemas) as url:
            self.execute(sql.SQL("CHECKPOINT").format())
            yield url


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

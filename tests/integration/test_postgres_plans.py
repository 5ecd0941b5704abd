"""The plans of a poll stay the same, with nothing in the outbox and with millions of rows in it."""

from __future__ import annotations

import os
import re
import statistics
import time
from typing import Any

import asyncpg
import psycopg
import pytest

from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add

MANY = 10_000_000 if os.environ.get("POSTHOUSE_BIG") == "1" else 1_000_000
"""Rows that are retained in the table."""

# A call of a function whose answer is of a type that drivers know.
POLL = "SELECT count(*), count(id) FROM posthouse.poll(%s::smallint[], %s::bigint[], %s, %s, %s, 0, NULL)"

# How often this transaction has read a partition whole, and which indexes of the outbox it has used.
SCANS = """
SELECT sum(t.seq_scan)::integer, array_agg(DISTINCT h.inhparent::regclass::text) FILTER (WHERE pg_stat_get_xact_numscans(i.indexrelid) > 0)
FROM pg_inherits l JOIN pg_stat_xact_user_tables t ON t.relid = l.inhrelid
JOIN pg_index i ON i.indrelid = l.inhrelid JOIN pg_inherits h ON h.inhrelid = i.indexrelid
WHERE l.inhparent = 'posthouse.outbox'::regclass
"""

# Rows of nearly nothing, spread over shards and partitions.
FILL = """
INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, body, slot)
SELECT n %% 16, 't', 't1', 'k' || n %% 16, n / 16 + 1, 1, 'e' || n, '\\x7b7d', n %% 4 FROM generate_series(%s, %s - 1) n
"""

BY_ID, BY_TRANSACTION = "posthouse.outbox_by_id", "posthouse.outbox_by_transaction"
NODE = re.compile(
    r"\{(SEQSCAN|SORT|INCREMENTALSORT|BITMAPHEAPSCAN|HASHJOIN|MERGEJOIN|INDEXSCAN|INDEXONLYSCAN|MERGEAPPEND)\b"
)
READS_ALL = {"SEQSCAN", "SORT", "INCREMENTALSORT", "BITMAPHEAPSCAN", "HASHJOIN", "MERGEJOIN"}


class Reader:
    """A session that polls by itself, and tells how its polls were planned and carried out."""

    def __init__(self, url: str, parameters: tuple[object, ...]) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.add_notice_handler(lambda notice: self._said.append(notice.message_detail or ""))
        self._parameters = parameters
        self._said: list[str] = []

    def poll(self, limit: int = 500) -> tuple[int, list[str]]:
        """How often a partition was read whole, and by which indexes. From 15 on the server counts what a session has not reported
        yet as a part of its transaction, so it reports before."""
        if self._connection.info.server_version >= 150000:
            self._connection.execute("SELECT pg_stat_force_next_flush()")
        with self._connection.transaction():
            self._connection.execute(POLL, (*self._parameters, limit, True))
            [whole, indexes] = self._connection.execute(SCANS).fetchone() or (0, [])
            return whole, indexes

    def plans(self, limit: int = 500) -> set[str]:
        """What the plans of a poll are made of, when a new session makes them."""
        self._said.clear()
        self._connection.execute("SET client_min_messages = log")
        self._connection.execute("SET debug_print_plan = on")
        self._connection.execute(POLL, (*self._parameters, limit, True))
        self._connection.execute("SET debug_print_plan = off")
        return {node for said in self._said for node in NODE.findall(said)}

    def seconds(self) -> float:
        """The time of one poll: the median of many."""
        taken = []
        for _ in range(200):
            began = time.perf_counter()
            self._connection.execute(POLL, (*self._parameters, 500, False))
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


async def fill(url: str, number: int) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        step = 500_000
        for first in range(0, number, step):
            await connection.execute(FILL, (first, min(first + step, number)))


async def send_all(store: PostgresStore, url: str) -> None:
    """As if a relay had read everything: by one statement instead of thousands of pages."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute("UPDATE posthouse.shard SET s1 = pg_current_snapshot()")
    await connection.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_poll_reads_by_index_and_never_sorts_with_nothing_and_with_millions_of_rows(
    store: PostgresStore, postgres_url: str
) -> None:
    shards = await store.outbox.lease("a", 3600)
    parameters = ([shard.number for shard in shards], [shard.epoch for shard in shards], shards[0].run)
    by_transaction, by_both = (0, [BY_TRANSACTION]), (0, [BY_ID, BY_TRANSACTION])
    with Reader(postgres_url, parameters) as old:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE posthouse.outbox")
        for _ in range(7):  # the plans are made, and cached, while the table is empty and known to be
            assert old.poll() == by_transaction
        assert_by_index(postgres_url, parameters)
        await add(store, row("k"))
        at_nothing = old.seconds()

        await fill(postgres_url, MANY)
        assert old.poll() == by_both, "a backlog"
        assert_by_index(postgres_url, parameters, "MERGEAPPEND")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ANALYZE posthouse.outbox")
        assert_by_index(postgres_url, parameters, "MERGEAPPEND")

        await send_all(store, postgres_url)
        await add(store, row("k"))
        assert old.poll() == by_transaction, "new rows among those that were sent"
        assert_by_index(postgres_url, parameters)
        at_many = old.seconds()
    print(f"a poll with {MANY:,} rows retained takes {at_many / at_nothing:.2f} of one with none")
    assert at_many < 3 * at_nothing + 0.001


def assert_by_index(url: str, parameters: tuple[object, ...], *also: str) -> None:
    """A session that has no plans yet makes good ones."""
    with Reader(url, parameters) as new:
        found = new.plans()
    assert found & {"INDEXSCAN", "INDEXONLYSCAN"}
    assert set(also) <= found
    assert not found & READS_ALL

"""Sagas of a large table are found by index, and of many who begin one again, one does."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import psycopg

from posthouse import App, Saga, Service, Turn, starts
from posthouse.app import app_of
from posthouse.store.sagas import SagaFilter, SagaRef
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.rows import find_sagas

FILL = """
INSERT INTO posthouse.saga (tenant, saga, id, attempt, status, turn, reason, started_at, changed_at, ended_at, purged_at,
    parent_saga, parent_id, parent_attempt, progress, state)
SELECT 't' || n % 10, 'claim', 'c' || n, 1, 'completed', 1, '', 0, 0, 0, CASE WHEN n % 2 = 0 THEN 1 END,
    CASE WHEN n % 100 = 0 THEN 'group' END, 'g' || n, 1, '{}', '{}' FROM generate_series(1, 40000) n;
INSERT INTO posthouse.saga_index (tenant, number, field, value)
SELECT tenant, number, 'policy_id', 'p' || number % 5000 FROM posthouse.saga WHERE purged_at IS NULL;
INSERT INTO posthouse.saga_index (tenant, number, field, value)
SELECT tenant, number, 'task approved', '' FROM posthouse.saga WHERE number % 1000 = 1;
ANALYZE posthouse.saga; ANALYZE posthouse.saga_index;
"""


SEARCHES = [
    (SagaFilter(where={"policy_id": "p7"}), "saga_index_value"),
    (SagaFilter(where={"policy_id": "p7"}, tenant="t7", saga="claim"), "saga_index_value"),
    (SagaFilter(where={"task approved": ""}, tenant="t1", saga="claim"), "saga_index_value"),
    (SagaFilter(parent=SagaRef("group", "g200"), tombstones=True), "saga_parent"),
    (SagaFilter(saga="claim", tenant="t1", id="c1", tombstones=True), "saga_(id|pkey)"),  # both have one row of an id
    (SagaFilter(saga="claim", status="running"), "saga_status"),
]


async def test_no_search_reads_the_whole_table(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute(FILL)
        for wanted, index in SEARCHES:
            sql, parameters = find_sagas(wanted, after=0, limit=100, prefix="posthouse.")
            explain = f"EXPLAIN {sql.replace('{}', '%s')}".encode()
            plan = "\n".join([line async for (line,) in await connection.execute(explain, parameters)])
            assert re.search(rf"\b{index}\b", plan), plan
            assert "Seq Scan" not in plan, plan


class Claim(Saga):
    claim_id: str

    @starts
    def begun(self, turn: Turn) -> None: ...


async def test_of_many_who_begin_again_one_does(postgres_url: str, tmp_path: Path) -> None:
    service = Service("desk")
    App(service, store=postgres_url, broker=f"embedded:///{tmp_path}/log.db?single_host=true")
    service.saga("claim", correlate="claim_id", again=("cancelled",))(Claim)
    await app_of(service).store.upgrade()

    async def start() -> tuple[str, int]:
        async with service.transaction("t1") as tx:
            answer = await service.start_saga(tx, Claim(claim_id="c1"))
            return answer.outcome, answer.attempt

    async with service.running():
        for attempt in range(1, 5):
            answers = Counter(await asyncio.gather(*(start() for _ in range(12))))
            assert answers == {("started", attempt): 1, ("running", attempt): 11}
            await app_of(service).sagas.cancel("claim", "c1", "again", tenant="t1")

"""The benchmarks on PostgreSQL run with very few events; how fast anything is, no test decides."""

from __future__ import annotations

import pytest

from benchmarks.postgres.consuming import refuse_unless_written
from benchmarks.postgres.load import BrokerKind, Way, loaded
from benchmarks.postgres.measures import MEASURES
from benchmarks.postgres.server import BenchServer, run
from benchmarks.reading import Scale
from tests.kit.servers.postgres import PostgresServer


@pytest.mark.parametrize(
    "name", ["relay", "relay-one-key", "commit", "consume", "consume-one-key", "wal", "backlog", "rebuild"]
)
async def test_a_measure_works_with_very_few_events(name: str, postgres_server: PostgresServer) -> None:
    readings = await MEASURES[name](BenchServer(postgres_server.url), Scale(share=0.0, rounds=1))
    assert readings
    assert all(reading.unit for reading in readings)
    assert all(reading.ours > 0 for reading in readings if reading.unit == "events/s")


async def test_a_figure_for_work_that_was_not_done_is_refused(postgres_server: PostgresServer) -> None:
    async with BenchServer(postgres_server.url).prepared() as url:
        await run(url, "INSERT INTO placed (order_id, total) VALUES ('o1', 1)")
        await refuse_unless_written(url, 1)
        with pytest.raises(RuntimeError, match="1 of 2 business rows"):
            await refuse_unless_written(url, 2)


@pytest.mark.parametrize(("kind", "way"), [("postgres", "outbox"), ("embedded", "direct"), ("embedded", "poll")])
async def test_a_load_says_how_long_each_event_but_the_first_was_on_its_way(
    kind: BrokerKind, way: Way, postgres_server: PostgresServer
) -> None:
    found = await loaded(BenchServer(postgres_server.url), kind, way, rate=100, seconds=1.0)
    assert len(found.delays) == 90
    assert max(found.delays) > 0

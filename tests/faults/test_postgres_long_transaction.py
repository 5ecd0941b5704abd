"""Fault 11: a transaction that stays open, and one that pins old rows. Nobody waits for them."""

from __future__ import annotations

import statistics
import time

import psycopg

from posthouse import Service
from tests.faults.plant import Made, at_work, booking, effects, say, settled, until

ROUNDS = 60


async def latencies(service: Service, key: str) -> list[float]:
    """Seconds from saying to having it applied, one after the other."""
    found = []
    for number in range(ROUNDS):
        began = time.monotonic()
        await say(service, key, number)
        await until(lambda number=number: reached(service, key, number), "the event to be applied")  # type: ignore[misc]
        found.append(time.monotonic() - began)
    return found


async def reached(service: Service, key: str, number: int) -> bool:
    return (await effects(service, key))[-1:] == [number]


async def test_a_transaction_left_open_and_one_that_pins_old_rows_cost_nobody_time(postgres_url: str) -> None:
    service = booking()
    async with at_work(service, postgres_url):
        await latencies(service, "warm")
        before = await latencies(service, "before")
        with psycopg.connect(postgres_url) as reader, psycopg.connect(postgres_url) as writer:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM posthouse.outbox")
            service.outbox.add_now(writer, Made(key="never"), tenant="t1")
            during = await latencies(service, "during")
            writer.rollback()
        await settled(service)
        assert await effects(service, "during") == list(range(ROUNDS))
        assert await effects(service, "never") == []
    assert statistics.median(during) < 2 * statistics.median(before) + 0.02, (
        f"{statistics.median(before):.4f} s before, {statistics.median(during):.4f} s during"
    )

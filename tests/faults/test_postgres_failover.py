"""Fault 9: a standby that missed the last commits takes over. What it lost is told, nothing is applied twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreUnavailable
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from tests.faults.plant import at_work, booking, effects, say, settled, until
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres
from tests.kit.servers.standby import Standby, following

__all__ = ["restartable_postgres"]


@pytest.fixture
def standby(restartable_postgres: RestartablePostgres) -> Iterator[Standby]:
    """A second server that follows the first one, asynchronously."""
    with following(restartable_postgres) as standby:
        yield standby


async def test_after_a_failover_that_lost_commits_their_numbers_are_set_aside_and_nothing_is_applied_twice(
    restartable_postgres: RestartablePostgres,
    standby: Standby,
    postgres_server: PostgresServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Producer and consumer have databases of their own; the producer's is the one that fails over."""
    producer, consumer, broker = booking(), booking(), MemoryBroker(clock=SystemClock())
    with postgres_server.database() as consumers:
        async with at_work(consumer, consumers, broker, only=("consumers",)):
            async with at_work(producer, restartable_postgres.url, broker, only=("relay",)):
                await say(producer, "k", 1, 2, 3)
                standby.catch_up()
                standby.stop_following()
                await say(producer, "k", 4, 5)
                await until(lambda: applied(consumer, [1, 2, 3, 4, 5]), "everything to be applied")
                restartable_postgres.crash()
            standby.promote()
            with caplog.at_level(logging.ERROR):
                async with at_work(producer, standby.url, broker, only=("relay",)):
                    for number in (6, 7, 8):
                        await say(producer, "k", number)
                    await say(producer, "other", 1)
                    await until(lambda: applied(consumer, [1], "other"), "other keys to flow")
                    await until(lambda: aside(consumer, 2), "the two re-used numbers to be set aside")
                    await until(lambda: applied(consumer, [1, 2, 3, 4, 5, 8]), "the key to go on")
            held = await app_of(consumer).store.held.find(HeldFilter())
            assert [(one.state, one.entry.sequence, one.entry.lineage) for one in held] == [
                ("quarantined", 4, 2),
                ("quarantined", 5, 2),
            ]
            assert all("fork" in one.reason for one in held)
            assert [record for record in caplog.records if "quarantined" in record.message], "an alarm was raised"


async def applied(service: Service, numbers: list[int], key: str = "k") -> bool:
    return await effects(service, key) == numbers


async def aside(service: Service, count: int) -> bool:
    return len(await app_of(service).store.held.find(HeldFilter(state="quarantined"))) == count


async def test_a_standby_is_refused_until_it_is_promoted(
    restartable_postgres: RestartablePostgres, standby: Standby
) -> None:
    """10: whoever reaches the wrong node waits; a URL that names both finds the right one."""
    service = booking()
    both = both_of(restartable_postgres.url, standby.url)
    async with at_work(service, both):
        await say(service, "k", 1, 2)
        await settled(service)
        standby.catch_up()
        lost = PostgresStore(standby.url, patience=2)
        with pytest.raises(StoreUnavailable):
            await lost.outbox.lease("a", 5)
        await lost.aclose()
        restartable_postgres.crash()
        standby.promote()
        await until(lambda: said(service, 3), "the promoted server to be found", 60)
        await settled(service, 60)
        assert await effects(service, "k") == [1, 2, 3]


async def said(service: Service, number: int) -> bool:
    await say(service, "k", number)
    return True


def both_of(first: str, second: str) -> str:
    """One URL for two servers."""
    one, two = (psycopg.conninfo.conninfo_to_dict(url) for url in (first, second))
    return f"postgresql://postgres@127.0.0.1:{one['port']},127.0.0.1:{two['port']}/postgres"

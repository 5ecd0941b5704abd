"""A key store on a server that is killed and comes back while consumers run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from posthouse.store import HeldEvent, HeldFilter
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres
from tests.kit.waiting import eventually

__all__ = ["restartable_postgres"]

pytestmark = pytest.mark.timeout(120)

GUESTS = ("g1", "g2", "g3")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of the service, whose database stays up."""
    if request.param == "sqlite":
        yield ""
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


async def test_a_key_store_that_dies_and_comes_back_again_and_again_delays_events_and_loses_none(
    tmp_path: Path, store: str, restartable_postgres: RestartablePostgres
) -> None:
    """The reader asks for every key anew. The writer has them in memory, and goes on."""
    keys = PostgresKeys(restartable_postgres.url)
    await keys.upgrade()
    await keys.aclose()
    terms = {"store": store, "broker": store, "keys": restartable_postgres.url}
    writer = Hotel(tmp_path, **terms)
    reader = Hotel(tmp_path, keep=0.01, patience=1.0, **terms)
    await writer.app.store.upgrade()
    number, held_up = 0, 0

    async def say(rounds: int) -> None:
        nonlocal number
        for _ in range(rounds):
            number += 1
            for guest in GUESTS:
                await writer.register(guest, f"name of {guest}", room=str(number))

    async def held() -> Sequence[HeldEvent]:
        return await reader.app.store.held.find(HeldFilter())

    try:
        await say(1)
        async with reader.app.running():
            await eventually(lambda: len(reader.heard) == len(GUESTS))
            for _ in range(2):
                await asyncio.to_thread(restartable_postgres.crash)
                await say(5)
                waiting = await eventually(held)
                held_up += len(waiting)
                assert {one.state for one in await held()} <= {"retrying", "waiting", "blocked"}, await held()
                await asyncio.to_thread(restartable_postgres.start)
                await say(2)
                await eventually(lambda: len(reader.heard) == number * len(GUESTS))
            await drained(reader.service)
            assert await held() == []
    finally:
        await writer.app.aclose()
        await reader.app.aclose()
    assert held_up
    for guest in GUESTS:
        seen = [(event.data.room, event.data.name) for event in reader.heard if event.data.guest_id == guest]
        assert seen == [(str(room), f"name of {guest}") for room in range(1, number + 1)]

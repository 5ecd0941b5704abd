"""Fault 25: the database's own clock jumps, by libfaketime. Leases and due times go by it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.app import app_of
from posthouse.stores.postgres import PostgresStore
from tests.faults.plant import Made, at_work, booking, effects, say, settled, until
from tests.kit.servers.faketime import faketime
from tests.kit.servers.postgres import PostgresServer, Unavailable, binaries, give_up, running


class Server(PostgresServer):
    """A server whose clock can be set."""

    def __init__(self, url: str, clock: Path) -> None:
        super().__init__(url)
        self._clock = clock

    def jump(self, hours: int) -> None:
        """So many hours off from now on."""
        self._clock.write_text(f"{hours:+d}h\n")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = faketime()
    place = Path("/tmp") / f"posthouse-clock-{tmp_path_factory.getbasetemp().name}"
    place.mkdir(mode=0o755, exist_ok=True)  # the server runs as somebody else and must be able to read it
    clock = place / "clock"
    clock.write_text("+0h\n")
    environment = {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    try:
        with running(binaries(), environment=environment) as url:
            yield Server(url, clock)
    except Unavailable as error:
        give_up(f"no PostgreSQL with a clock to set: {error}")
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_database_whose_clock_jumps_loses_doubles_and_inverts_nothing(server: Server, hours: int) -> None:
    service = booking()
    with server.database() as url:
        async with at_work(service, PostgresStore(url)):
            await say(service, "k", 1, 2)
            async with service.transaction("t1") as tx:
                tx.publish(Made(key="timer", number=1), after=1.0)
                tx.publish(Made(key="late", number=1), after=12 * 3600.0)
            await settled(service)
            server.jump(hours)
            await say(service, "k", 3, 4)

            async def applied() -> bool:
                return await effects(service, "k") == [1, 2, 3, 4]

            await until(applied, "what was said after the jump")
            server.jump(0)
            await say(service, "k", 5)

            async def fired() -> bool:
                return await effects(service, "k") == [1, 2, 3, 4, 5] and await effects(service, "timer") == [1]

            await until(fired, "the timer, once the clock is right again")
            assert await effects(service, "late") == []
            assert [timer.row.key for timer in await app_of(service).store.timers.pending()] == ["late"]


async def test_shards_of_a_relay_that_died_are_not_lost_with_the_hours_that_the_clock_went_back(server: Server) -> None:
    with server.database() as url:
        store = PostgresStore(url)
        await store.upgrade()
        server.jump(2)
        taken = await store.outbox.lease("dead", 10.0)
        server.jump(0)
        assert len(await store.outbox.lease("alive", 10.0)) == len(taken)
        await store.aclose()

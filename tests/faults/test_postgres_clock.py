"""Fault 24: clocks that jump. Leases and due times go by the database's clock, whatever the machines think."""

from __future__ import annotations

import time

import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.clock import SystemClock
from posthouse.stores.postgres import PostgresStore
from tests.faults.plant import Made, at_work, booking, effects, say, settled, until

HOURS = 2 * 3600.0


class JumpingClock(SystemClock):
    """The machine's clock, so many seconds off."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off

    def now(self) -> float:
        return time.time() + self.off


@pytest.mark.parametrize("jump", [-HOURS, HOURS])
async def test_a_machine_whose_clock_jumps_keeps_its_shards_and_goes_on(
    postgres_url: str, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    service, clock = booking(), JumpingClock()
    async with at_work(service, PostgresStore(postgres_url), clock=clock):
        await say(service, "k", 1, 2)
        await settled(service)
        clock.off = jump
        before = await leased_until(service)

        async def renewed() -> bool:
            return await leased_until(service) > before + 1.0

        await until(renewed, "the lease to be renewed")
        await say(service, "k", 3)
        await settled(service)
        assert await effects(service, "k") == [1, 2, 3]
    assert "lost its shards" not in caplog.text


async def leased_until(service: Service) -> float:
    """When the lease of the shards ends, by the database's clock."""
    async with app_of(service).store.begin() as tx:
        return float(str((await tx.execute("SELECT min(until) FROM posthouse.shard")).scalar()))


@pytest.mark.parametrize("off", [-HOURS, HOURS])
async def test_a_machine_whose_clock_is_wrong_fires_no_timer_early(postgres_url: str, off: float) -> None:
    """A timer set by a machine that is right is not fired early by one that is hours ahead, nor twice by both."""
    right, wrong = booking(), booking()
    async with (
        at_work(right, PostgresStore(postgres_url), only=("relay", "consumers")),
        at_work(wrong, PostgresStore(postgres_url), clock=JumpingClock(off), only=("timers",)),
    ):
        async with right.transaction("t1") as tx:
            tx.publish(Made(key="late", number=1), after=HOURS / 2)
            tx.publish(Made(key="soon", number=1), after=0.5)
        began = time.monotonic()

        async def fired() -> bool:
            return await effects(right, "soon") == [1]

        await until(fired, "the timer of now")
        assert time.monotonic() - began > 0.4
        assert [timer.row.key for timer in await app_of(right).store.timers.pending()] == ["late"]
        assert await effects(right, "late") == []


async def test_ids_are_unique_and_numbers_grow_when_the_clock_goes_back(postgres_url: str) -> None:
    service, clock = booking(), JumpingClock(HOURS)
    async with at_work(service, PostgresStore(postgres_url), clock=clock):
        for number in range(10):
            clock.off -= HOURS / 4
            await say(service, "k", number)
        await settled(service)
        assert await effects(service, "k") == list(range(10))
        async with app_of(service).store.begin() as tx:
            assert (await tx.execute("SELECT count(DISTINCT event_id) FROM posthouse.outbox")).scalar() == 10

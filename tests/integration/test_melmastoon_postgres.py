"""The core of Melmastoon on PostgreSQL: bookings that really race for a room, and a stay through six services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg
import pytest

from melmastoon.billing import billing
from melmastoon.billing.accounts import balance
from melmastoon.billing.stay import post_extra
from melmastoon.demo.secrets import secrets_in
from melmastoon.facts.billing import ChargePosted, FolioClosed, FolioOpened, RefundPosted
from melmastoon.facts.housekeeping import TaskAssigned
from melmastoon.facts.inventory import AllocationCommitted, AllocationReallocated, OversellBlocked
from melmastoon.facts.lock_integration import KeyIssued, KeyRevoked, KeyUpdated
from melmastoon.facts.payment import IntentCaptured
from melmastoon.facts.staff import ShiftOpened
from melmastoon.housekeeping import housekeeping
from melmastoon.inventory import inventory
from melmastoon.inventory.allocation import ADD
from melmastoon.inventory.handlers import allocate
from melmastoon.lock_integration import lock_integration
from melmastoon.payment import payment
from melmastoon.pricing import pricing
from melmastoon.pricing.commands import publish_rate_plan
from melmastoon.tables import run
from melmastoon.vendors.weather import Scripted
from melmastoon.vendors.world import World, pretending
from posthouse import Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock, ManualClock
from posthouse.testing import Harness, rehost
from tests.kit.servers.postgres import PostgresServer
from tests.unit.melmastoon.stay import (
    check_in_started,
    check_out_started,
    checked_in,
    checked_out,
    confirmed,
    dates_changed,
    day,
    held,
    room,
)


class GivenUp(Exception):
    """A transaction that is rolled back."""


WAITING = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"


@asynccontextmanager
async def on_postgres(
    service: Service, url: str, broker: MemoryBroker, clock: Clock, folder: Path
) -> AsyncIterator[Service]:
    """A service on a database of its own; the keys of guests are in the folder."""
    before = rehost(service, store=url, broker=broker, clock=clock, secrets=secrets_in(folder, service))
    try:
        await app_of(service).store.upgrade()
        yield service
    finally:
        await service.aclose()
        service.hosted_by(before)


@pytest.fixture
async def rooms(postgres_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """Inventory with one room, and two bookings that want it, the second from a night earlier on; the URL of its database."""
    clock = ManualClock()
    async with on_postgres(inventory, postgres_url, MemoryBroker(clock=clock), clock, tmp_path):
        async with inventory.transaction("t1") as tx:
            await run(
                tx, "INSERT INTO rooms (tenant, room_id, property_id, room_type) VALUES (?, 'r1', 'p1', 'double')", "t1"
            )
            for booking_id, first in (("b1", 2), ("b2", 1)):
                window = (day(first).isoformat(), day(first + 3).isoformat())
                await run(tx, ADD, "t1", booking_id, "p1", "double", *window)
        yield postgres_url


async def somebody_waits(url: str) -> None:
    """Until one transaction waits for another."""
    deadline = time.monotonic() + 20
    connection = await asyncpg.connect(url)
    try:
        while await connection.fetchval(WAITING) == 0:
            assert time.monotonic() < deadline, "nobody waits"
    finally:
        await connection.close()


async def allocate_second() -> None:
    async with inventory.transaction("t1") as tx:
        await allocate(tx, "b2")


async def owners() -> list[str]:
    async with inventory.transaction("t1") as tx:
        nights = await run(tx, "SELECT booking_id FROM nights ORDER BY night")
    return [str(booking_id) for (booking_id,) in nights]


async def states() -> dict[str, str]:
    async with inventory.transaction("t1") as tx:
        return {str(id): str(state) for id, state in await run(tx, "SELECT booking_id, state FROM allocations")}


async def test_of_two_transactions_at_the_same_moment_one_gets_the_last_room(rooms: str) -> None:
    async with inventory.transaction("t1") as first:
        await allocate(first, "b1")
        second = asyncio.create_task(allocate_second())
        await somebody_waits(rooms)
        assert not second.done()
    await second
    assert await owners() == ["b1"] * 3
    assert await states() == {"b1": "committed", "b2": "blocked"}


async def test_a_room_goes_to_the_one_who_waited_when_the_first_gives_up(rooms: str) -> None:
    second: list[asyncio.Task[None]] = []

    async def give_up() -> None:
        async with inventory.transaction("t1") as first:
            await allocate(first, "b1")
            second.append(asyncio.create_task(allocate_second()))
            await somebody_waits(rooms)
            raise GivenUp

    with pytest.raises(GivenUp):
        await give_up()
    await second[0]
    assert await owners() == ["b2"] * 3
    assert await states() == {"b1": "waiting", "b2": "committed"}


class PostgresHarness(Harness):
    """The harness, with a database for each service."""

    def __init__(self, server: PostgresServer, *services: Service) -> None:
        super().__init__(*services)
        self._server = server
        self._databases = ExitStack()

    async def __aenter__(self) -> Self:
        for service in self.services:
            url = self._databases.enter_context(self._server.database())
            secrets = self._under_own_keys(app_of(service).opened.secrets)
            self._before.append(rehost(service, store=url, broker=self.broker, clock=self.clock, secrets=secrets))
            await app_of(service).store.upgrade()
            self._runtimes.append(await app_of(service).opened.prepare())
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self._runtimes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._databases:
            await super().__aexit__(kind, error, trace)


async def test_of_many_bookings_at_once_as_many_get_a_room_as_there_are_rooms(postgres_server: PostgresServer) -> None:
    async with PostgresHarness(postgres_server, inventory) as h:
        for number in range(3):
            await h.publish(room(f"r{number}"))
        await h.settled(30)
        for number in range(24):
            first = 1 + number % 2
            await h.publish(held(f"b{number:02}", first=first, last=first + 2))
        await h.settled(60)
        won = [e.data.booking_id for e in await h.published(AllocationCommitted)]
        lost = [e.data.booking_id for e in await h.published(OversellBlocked)]
        assert (len(won), len(lost), len({*won, *lost})) == (3, 21, 24)
        assert sorted(await owners()) == sorted(won * 2)


async def test_a_stay_through_all_six_services(postgres_server: PostgresServer) -> None:
    """Reservation is absent: its facts are said when their time has come."""
    moods = Scripted(moods={"capture": ["lost"], "put": ["error"], "revoke": ["late"], "refund": ["twice"]})
    services = (inventory, pricing, payment, billing, lock_integration, housekeeping)
    with pretending(World(weather=moods)) as outside:
        async with PostgresHarness(postgres_server, *services) as h:

            async def hear(*facts: object) -> None:
                for fact in facts:
                    await h.publish(fact)
                await h.settled(30)

            async with pricing.transaction("t1") as tx:
                await publish_rate_plan(tx, "bar", property_id="p1", room_type="double", night_cents=12_000)
            await hear(room(), ShiftOpened(staff_id="s1", shift_id="s1-1", property_id="p1", duty="housekeeping"))
            await hear(held())
            assert [e.data.room_id for e in await h.published(AllocationCommitted)] == ["r1"]
            assert [e.data.amount_cents for e in await h.published(IntentCaptured)] == [20_000]
            await hear(confirmed())
            assert len(await h.published(KeyIssued)) == 1
            await hear(dates_changed(first=1, last=4))
            assert len(await h.published(AllocationReallocated)) == len(await h.published(KeyUpdated)) == 1
            assert outside.ledger.charged("t1") == {"b1": 32_000}
            await hear(dates_changed(first=1, last=3, change_id="c2"))
            assert [e.data.amount_cents for e in await h.published(RefundPosted)] == [12_000]
            await hear(check_in_started(), checked_in())
            assert len(await h.published(FolioOpened)) == 1
            async with billing.transaction("t1") as tx:
                await post_extra(tx, "b1", line_id="minibar-1", amount_cents=700)
            await hear(check_out_started())
            assert await h.published(KeyRevoked) == []
            await hear(check_out_started(asks="key"))
            assert [e.data.charged_cents for e in await h.published(FolioClosed)] == [20_700]
            assert [e.data.reason for e in await h.published(KeyRevoked)] == ["checked_out"]
            assert [e.data.staff_id for e in await h.published(TaskAssigned)] == ["s1"]
            await hear(checked_out())
            charged = sum(e.data.amount_cents for e in await h.published(ChargePosted))
            given_back = sum(e.data.amount_cents for e in await h.published(RefundPosted))
            assert outside.ledger.charged("t1") == {"b1": charged - given_back} == {"b1": 20_700}
            assert outside.ledger.opening("t1") == {}
            async with billing.transaction("t1") as tx:
                assert await balance(tx, "b1") == 0
            for service in services:
                assert await h.held(service) == []

"""The equation while events flow: never a false alarm, and what is lost is found."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from posthouse import App, Event, Payload, Service, Tx
from posthouse.resend import Choice, resend
from posthouse.watch.standing import Standing
from posthouse.watch.status import drained
from tests.integration import standing_member
from tests.kit.samples import Found
from tests.kit.waiting import eventually

KEYS = 7
LOST = 3
ROOT = Path(__file__).parents[2]
TOPIC = {"service": "market", "topic": "market.sale"}
LINE = {"service": "till", "consumer": "till", "topic": "market.sale"}


class Sold(Payload):
    key: str
    number: int


class Market:
    """A producer and a consumer on a store and a broker, and a way to take frames out of the broker."""

    def __init__(self, store: str, broker: str, lose: Callable[[], int]) -> None:
        self.market, till = Service("market"), Service("till")
        self.market.event("sale.made.v1", key="key")(Sold)
        self.app = App(self.market, till, store=store, broker=broker)
        self.standing = Standing([self.app])
        self.lose = lose
        self.published = self.applied = 0
        self.moved = asyncio.Event()

        @till.on(Sold)
        async def book(event: Event[Sold], tx: Tx) -> None:
            self.applied += event.data.key.startswith("load")
            self.moved.set()

    async def publish(self, number: int, key: str = "k") -> None:
        async with self.market.transaction("t1") as tx:
            for _ in range(number):
                tx.publish(Sold(key=f"{key}{self.published % KEYS}", number=self.published))
                self.published += 1

    @contextlib.asynccontextmanager
    async def load(self, *, behind: int, pause: float) -> AsyncIterator[None]:
        """A few events at a time, so many seconds after no more than so many were left to be applied; without end."""
        over, before = asyncio.Event(), self.published

        async def publishing() -> None:
            while not over.is_set():
                await self.publish(1 + self.published % 4, "load")
                while self.published - before - self.applied > behind:
                    self.moved.clear()
                    await self.moved.wait()
                await asyncio.sleep(pause)

        task = asyncio.create_task(publishing())
        try:
            yield
        finally:
            over.set()
            await task

    async def look(self) -> tuple[float, float]:
        """Unaccounted for, and whether nobody can tell."""
        self.found = Found(await self.standing.samples())
        return self.found.one("consumer_unaccounted", **LINE), self.found.one("consumer_unknown", **LINE)


@pytest.fixture(params=["sqlite", "postgres"])
def market(request: pytest.FixtureRequest, tmp_path: Path) -> Market:
    """On one of both stores, with its own broker."""
    if request.param == "sqlite":
        path = tmp_path / "log.db"
        return Market(f"sqlite:///{tmp_path / 'market.db'}", f"embedded:///{path}", partial(from_embedded, path))
    url: str = request.getfixturevalue("postgres_url")
    return Market(url, url, partial(from_postgres, url))


def from_embedded(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        some = "SELECT offset FROM frames ORDER BY offset LIMIT ? OFFSET 5"
        return connection.execute(f"DELETE FROM frames WHERE offset IN ({some})", (LOST,)).rowcount


def from_postgres(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        some = "SELECT position FROM posthouse_log.frames ORDER BY position LIMIT %s OFFSET 5"
        return connection.execute(f"DELETE FROM posthouse_log.frames WHERE position IN ({some})", (LOST,)).rowcount


async def test_a_healthy_run_under_load_never_looks_as_if_something_were_missing(
    market: Market,
) -> None:
    await market.app.store.upgrade()
    looks = 0
    async with market.app.running():
        async with market.load(behind=500, pause=0.002):
            while looks < 5 or market.published < 300:
                assert await market.look() == (0, 0)
                looks += 1
        await drained(market.market)
        assert await market.look() == (0, 0)
    assert market.found.one("consumer_applied_total", **LINE) == market.published


async def test_what_the_broker_lost_is_found_while_events_flow_and_never_overstated(
    market: Market,
) -> None:
    await market.app.store.upgrade()
    async with market.app.running(only=["relay"]):
        await market.publish(30)
        await eventually(market.look, right=lambda _: market.found.one("outbox_unsent", topic="market.sale") == 0)
        assert market.lose() == LOST
    looks = list[float]()
    async with market.app.running():
        async with market.load(behind=0, pause=0.05), asyncio.timeout(60):
            while LOST not in looks or market.applied < 50:
                looks.append((await market.look())[0])
        assert max(looks) == LOST >= min(looks) >= 0, looks
        async with market.load(behind=40, pause=0.002):
            for _ in range(3):
                assert await market.look() == (LOST, 0), "once it was certain it stays it, however much moves"
        await resend([market.app], Choice(missing=True))
        await eventually(market.look, right=(0, 0).__eq__)


async def test_ages_grow_after_every_worker_was_killed(tmp_path: Path) -> None:
    app = standing_member.app_in(tmp_path)
    await app.store.upgrade()
    standing = Standing([app])
    found = Found([])

    async def look() -> Found:
        nonlocal found
        found = Found(await standing.samples())
        return found

    command = ("-m", "tests.integration.standing_member", str(tmp_path))
    worker = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
    try:
        async with standing_member.market.transaction("t1") as tx:
            tx.publish(standing_member.Sold(key="a"))
        await eventually(look, right=lambda seen: seen.one("consumer_applied_total", **LINE) == 1)
        await eventually(look, right=lambda seen: seen.one("workers", service="till", part="consumers") == 1)
        assert found.one("consumer_lag_seconds", **LINE) == 0
        async with standing_member.market.transaction("t1") as tx:
            tx.publish(standing_member.Sold(key="b", stuck=True))
        await eventually(look, right=lambda seen: seen.one("outbox_unsent", **TOPIC) == 0)
    finally:
        worker.kill()
        await worker.wait()
    async with standing_member.market.transaction("t1") as tx:
        tx.publish(standing_member.Sold(key="c"))
    first = await look()
    assert (first.one("consumer_in_flight", **LINE), first.one("outbox_unsent", **TOPIC)) == (2, 1)
    lag, unsent = first.one("consumer_lag_seconds", **LINE), first.one("outbox_oldest_unsent_seconds")
    assert lag > unsent > 0
    await eventually(look, right=lambda seen: seen.one("outbox_oldest_unsent_seconds") > unsent + 0.3)
    assert found.one("consumer_lag_seconds", **LINE) > lag + 0.3
    assert found.one("consumer_unaccounted", **LINE) == 0
    await app.aclose()


async def test_connections_are_counted_against_what_the_server_takes(postgres_url: str) -> None:
    """Whoever's they are: the next one is refused to everybody."""
    service = Service("crowd")
    app = App(service, store=postgres_url, broker=postgres_url)
    await app.store.upgrade()
    standing = Standing([app])

    async def look() -> dict[str, float]:
        found = Found(await standing.samples())
        counts = {state: found.one("store_connections", state=state) for state in ("used", "free")}
        return {**counts, "limit": found.one("store_connections_limit")}

    before = await look()
    assert before["used"] + before["free"] == before["limit"]
    with contextlib.ExitStack() as crowd:
        for _ in range(int(before["free"]) - 4):
            crowd.enter_context(psycopg.connect(postgres_url))
        full = await look()
        assert 0 <= full["free"] <= 6
        assert full["limit"] == before["limit"]
    await app.aclose()

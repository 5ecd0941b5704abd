"""A broker loses what it had accepted. What its producer's store still has is sent again, and every consumer ends with each event
once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.app import app_of, apps_of
from posthouse.resend import Choice, Resent, Tally, resend
from posthouse.store import HeldFilter, SentFilter
from posthouse.store.actions import ActionFilter
from posthouse.watch.status import Status, drained, status
from tests.kit.waiting import eventually

TABLE = "CREATE TABLE IF NOT EXISTS applied (key TEXT, number INTEGER)"


class Shop:
    """A producer, a consumer that keeps the order of keys, and one that does not; each with a file of its own."""

    def __init__(self, place: Path, **settings: float) -> None:
        self.place = place
        self.orders, self.billing, self.counter = (
            Service(n, namespace="shop") for n in ("orders", "billing", "counter")
        )
        for service in self.services:
            App(
                service,
                store=f"sqlite:///{place}/{service.name}.db?synchronous=NORMAL",
                broker=f"embedded:///{place}/log.db?synchronous=NORMAL&partitions=2",
                settings=Settings(**settings),  # type: ignore[arg-type]
            )
            service.setup(_tables)

        @self.orders.event("order.changed.v1", key="key")
        class Changed(Payload):
            key: str
            number: int

        self.changed = Changed
        self.numbers: defaultdict[str, int] = defaultdict(int)

        @self.billing.on(Changed)
        async def in_order(event: Event[Changed], tx: Tx) -> None:
            await tx.execute("INSERT INTO applied VALUES (?, ?)", (event.data.key, event.data.number))

        @self.counter.on(Changed, policy=Policy(order="none"))
        async def in_any_order(event: Event[Changed], tx: Tx) -> None:
            await tx.execute("INSERT INTO applied VALUES (?, ?)", (event.data.key, event.data.number))

    @property
    def services(self) -> tuple[Service, ...]:
        return self.orders, self.billing, self.counter

    async def say(self, *keys: str) -> None:
        for key in keys:
            self.numbers[key] += 1
            async with self.orders.transaction(tenant="t1") as tx:
                tx.publish(self.changed(key=key, number=self.numbers[key]))

    @contextlib.asynccontextmanager
    async def running(self, *services: Service) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for service in services:
                await stack.enter_async_context(service.running())
            yield
        for service in self.services:
            await service.aclose()

    async def sent(self) -> None:
        """Wait until the broker has all that was said."""
        await eventually(self._has_nothing_unsent)

    async def _has_nothing_unsent(self) -> bool:
        return not (await app_of(self.orders).store.counts()).unsent

    def lose_the_log(self) -> None:
        for ending in ("", "-wal", "-shm"):
            (self.place / f"log.db{ending}").unlink(missing_ok=True)

    async def resend(self, **choice: object) -> Resent:
        return (await resend(apps_of(self.services), Choice(**choice)))[0]  # type: ignore[arg-type]

    async def at_rest(self) -> Status:
        """Nothing is on its way, and nothing waits for another."""
        async with asyncio.timeout(30):
            while True:
                figures = await drained(*self.services)
                if figures.verdict == "adds up" and not any(line.held for line in figures.lines):
                    return figures
                await asyncio.sleep(0.02)

    def applied(self, service: Service) -> list[tuple[str, int]]:
        with contextlib.closing(sqlite3.connect(self.place / f"{service.name}.db")) as connection:
            return connection.execute("SELECT key, number FROM applied ORDER BY rowid").fetchall()

    def check(self) -> None:
        """Each once, and per key in order where order is kept."""
        said = sorted((key, number) for key, last in self.numbers.items() for number in range(1, last + 1))
        assert sorted(self.applied(self.billing)) == sorted(self.applied(self.counter)) == said
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        for key, number in self.applied(self.billing):
            by_key[key].append(number)
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


async def _tables(tx: Tx) -> None:
    await tx.execute(TABLE)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


async def missing(shop: Shop) -> Collection[int]:
    """What each line lacks once nothing moves."""
    await drained_of_what_moves(shop)
    return [line.difference for line in (await status(shop.services)).lines]


async def drained_of_what_moves(shop: Shop) -> None:
    async def still() -> bool:
        figures = await status(shop.services)
        return not any(figures.unsent.values()) and not any(line.in_flight for line in figures.lines)

    await eventually(still)


async def test_what_a_deleted_log_had_is_sent_again_and_applied_once(shop: Shop) -> None:
    async with shop.running(*shop.services):
        await shop.say("a", "b", "a")
        await shop.at_rest()
    async with shop.running(shop.orders):
        await shop.say("a", "b", "c")
        await shop.sent()
    shop.lose_the_log()
    async with shop.running(*shop.services):
        assert await missing(shop) == [3, 3]
        result = await shop.resend()
        assert (result.events, result.sent, result.refused) == (6, 6, {})
        await shop.at_rest()
    shop.check()


async def test_later_events_wait_at_the_gap_until_the_lost_ones_come(shop: Shop) -> None:
    async with shop.running(shop.orders):
        await shop.say("a", "a")
        await shop.sent()
    shop.lose_the_log()
    async with shop.running(*shop.services):
        await shop.say("a")
        await drained_of_what_moves(shop)
        (waiting,) = await app_of(shop.billing).store.held.find(HeldFilter())
        assert (waiting.state, shop.applied(shop.billing)) == ("gap", [])
        await shop.resend()
        await shop.at_rest()
    assert shop.applied(shop.billing) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("seed", range(3))
async def test_whenever_the_log_is_lost_everything_is_applied_once_and_in_order(tmp_path: Path, seed: int) -> None:
    """At random points, some of it applied, new facts said all the time, and sent again again and again."""
    chance, shop = random.Random(seed), Shop(tmp_path)
    for _ in range(4):
        readers = chance.sample(shop.services[1:], chance.randrange(3))
        async with shop.running(shop.orders, *readers):
            await shop.say(*chance.choices("abcd", k=chance.randrange(1, 15)))
            if chance.random() < 0.5:
                await shop.sent()
        if chance.random() < 0.7:
            shop.lose_the_log()
    async with shop.running(*shop.services):
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                group.create_task(shop.resend(missing=chance.random() < 0.5))
                group.create_task(shop.say(*chance.choices("abcd", k=10)))
        await shop.sent()
        await shop.resend()
        await shop.at_rest()
        assert (await shop.resend(missing=True)).events == 0, "nobody lacks anything any more"
    shop.check()


async def test_it_ends_with_what_was_there_when_it_began_however_fast_a_relay_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.resend.PAGE", 2)
    async with shop.running(shop.orders):
        await shop.say("a", "b", "c")
        await shop.sent()
        tally, pages = Tally(app_of(shop.orders), apps_of(shop.services), Choice()), []
        async for rows in tally.pages():
            pages.append([row.key for row in rows])
            assert len(pages) < 5, "it runs after the relay"
            await shop.say("d", "e", "f")
            await shop.sent()
        assert pages == [["a", "b"], ["c"]]
        assert (await tally.result()).gone == {}, "what was sent since is not gone"


async def test_only_what_a_consumer_lacks_is_sent_where_that_is_asked(shop: Shop) -> None:
    async with shop.running(shop.orders, shop.billing):
        await shop.say("a", "b", "b")
        await eventually(lambda: len(shop.applied(shop.billing)) == 3)
    shop.lose_the_log()
    async with shop.running(shop.orders, shop.billing):
        await shop.say("b")
        await eventually(lambda: len(shop.applied(shop.billing)) == 4)
    async with shop.running(*shop.services):
        await eventually(lambda: len(shop.applied(shop.counter)) == 1)
        await drained_of_what_moves(shop)
        assert (await shop.resend(missing=True, key="a")).sent == 1, "the counter has it not"
        assert (await shop.resend(missing=True, since=2e9)).sent == 0
        assert (await shop.resend(missing=True, until=2e9)).sent >= 2
        await shop.at_rest()
    shop.check()


async def test_a_key_that_went_on_without_lost_events_stays_past_them(shop: Shop) -> None:
    async with shop.running(shop.orders):
        await shop.say("a", "a")
        await shop.sent()
    shop.lose_the_log()
    async with shop.running(*shop.services):
        await shop.say("a")
        await drained_of_what_moves(shop)
        (waiting,) = await app_of(shop.billing).store.held.find(HeldFilter())
        await shop.billing.held.release(waiting.id, force=True)
        await eventually(lambda: shop.applied(shop.billing) == [("a", 3)])
        await shop.resend()
        await eventually(lambda: len(shop.applied(shop.counter)) == 3)
        await drained_of_what_moves(shop)
        figures = await shop.at_rest()
    assert shop.applied(shop.billing) == [("a", 3)], "given up is given up"
    assert {line.consumer: line.skipped for line in figures.lines} == {"billing": 2, "counter": 0}


async def test_unordered_events_that_a_consumer_may_have_forgotten_are_left_out(tmp_path: Path) -> None:
    shop = Shop(tmp_path, inbox_retention=1_300_000.0)
    async with shop.running(*shop.services):
        await shop.say("a")
        await shop.at_rest()
        with contextlib.closing(sqlite3.connect(tmp_path / "counter.db")) as connection, connection:
            connection.execute("DELETE FROM posthouse_inbox")
            connection.execute("INSERT INTO posthouse_forgotten VALUES ('counter', 9e9)")
        for app in apps_of(shop.services):
            object.__setattr__(app.settings, "inbox_retention", 0.0)
        result = await shop.resend()
        assert (result.events, result.forgotten, result.sent) == (0, 1, 0)
        assert (await shop.resend(force=True)).sent == 1
        await eventually(lambda: _is_set_aside(shop))
    assert shop.applied(shop.counter) == [("a", 1)], "even by force it is not applied twice"


async def _is_set_aside(shop: Shop) -> bool:
    held = await app_of(shop.counter).store.held.find(HeldFilter(state="quarantined"))
    return [one.reason for one in held] == ["older than the inbox remembers: it may have been applied before"]


async def test_what_was_sent_is_kept_by_the_housekeeping(shop: Shop) -> None:
    async with shop.running(shop.orders):
        await shop.say("a")
        await shop.sent()
        await (await app_of(shop.orders).opened.prepare()).tidy()
        assert len(await app_of(shop.orders).store.outbox.sent(SentFilter(), 0, 10)) == 1


MODULE = """
from pathlib import Path
from tests.faults.test_resend import Shop

shop = Shop(Path({place!r}))
orders, billing, counter = shop.services
"""


def frames_in(log: Path) -> int:
    with contextlib.closing(sqlite3.connect(log)) as connection:
        return int(connection.execute("SELECT count(*) FROM frames").fetchone()[0])


async def test_a_resend_that_is_killed_is_begun_again_and_nothing_is_doubled(shop: Shop) -> None:
    async with shop.running(shop.orders):
        async with shop.orders.transaction(tenant="t1") as tx:
            for number in range(1100):
                tx.publish(shop.changed(key=f"k{number % 50}", number=number // 50 + 1))
        shop.numbers.update({f"k{n}": 22 for n in range(50)})
        await shop.sent()
    shop.lose_the_log()
    (shop.place / "killed.py").write_text(MODULE.format(place=str(shop.place)))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    line = [sys.executable, "-m", "posthouse", "outbox", "resend", "killed:orders", "--yes", "--by", "ann"]
    process = await asyncio.create_subprocess_exec(*line, cwd=shop.place, env=env, stdout=subprocess.DEVNULL)
    log = shop.place / "log.db"
    await eventually(lambda: _has_frames(log))
    process.kill()
    await process.wait()
    async with shop.running(*shop.services):
        again = await asyncio.to_thread(
            subprocess.run, line, cwd=shop.place, env=env, capture_output=True, text=True, timeout=60
        )
        assert again.returncode == 0, again.stderr
        assert "1,100 events sent again" in again.stdout
        await shop.at_rest()
        acts = await app_of(shop.orders).store.actions.find(ActionFilter(verb="outbox resend"))
        assert (acts[0].by, acts[0].outcome, acts[0].count) == ("ann", "done", 1100)
        assert acts[-1].outcome in ("begun", "done"), "the one that was killed stays begun, unless it was quicker"
    shop.check()


def _has_frames(log: Path) -> bool:
    with contextlib.suppress(sqlite3.Error):
        return log.exists() and frames_in(log) > 0
    return False

"""Relays that follow PostgreSQL's log, killed, paused and fenced; slots that are lost; a server that restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from posthouse.errors import PosthouseError
from posthouse.sending import RelaySettings
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add
from tests.integration.wal_relay import (
    Sink,
    assert_in_order,
    following,
    numbers_of,
    relaying,
    settled,
)
from tests.kit.servers.logical import LOGICAL, logical_server, logical_url
from tests.kit.servers.postgres import Unavailable, binaries, give_up
from tests.kit.servers.restartable import RestartablePostgres, restartable
from tests.kit.waiting import eventually

__all__ = ["logical_server", "logical_url"]

RATE, KEYS = 300, 30
"""Events a second, over so many keys."""


class Line(NamedTuple):
    key: str
    number: int
    mode: str
    process: int


class House:
    """The relays of one test and the file that they publish to."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._report = folder / "published"
        self.running: list[subprocess.Popen[bytes]] = []
        self.killed = 0

    def start(self, source: str = "wal") -> None:
        """It lets SIGTERM in when it is ready to be told; until then the signal waits."""
        script = Path(__file__).with_name("wal_member.py")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            self.running.append(subprocess.Popen([sys.executable, str(script), self._url, source, str(self._report)]))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def kill(self, which: int = 0) -> None:
        process = self.running.pop(which)
        process.kill()
        process.wait(20)
        self.killed += 1

    def end(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            assert process.wait(20) == 0, "a relay asked to leave leaves in good order"
        self.running.clear()

    def lines(self) -> list[Line]:
        if not self._report.exists():
            return []
        whole = self._report.read_text().split("\n")[:-1]
        return [Line(key, int(number), mode, int(process)) for key, number, mode, process in map(str.split, whole)]

    def followed(self) -> Counter[int]:
        """How many each process published from the log."""
        return Counter(line.process for line in self.lines() if line.mode == "wal")

    def clean_up(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def house(logical_url: str, tmp_path: Path) -> Iterator[House]:
    house = House(logical_url, tmp_path)
    yield house
    house.clean_up()


@contextlib.asynccontextmanager
async def writing(url: str) -> AsyncIterator[PostgresStore]:
    """Somebody commits events all the time, some of them late, some in one transaction; errors are for others to mind."""
    store, stop, chance = PostgresStore(url, patience=5.0), asyncio.Event(), random.Random(5)
    await store.upgrade()

    async def write() -> None:
        while not stop.is_set():
            with contextlib.suppress(PosthouseError):
                async with store.begin() as tx:
                    keys = sorted(f"k{chance.randrange(KEYS)}" for _ in range(chance.choice([1, 1, 1, 4])))
                    await store.outbox.append(tx, [row(key) for key in keys])
                    if chance.random() < 0.05:
                        await asyncio.sleep(0.2)
            await asyncio.sleep(chance.random() * 2 * 6 * 1.75 / RATE)

    writers = [asyncio.create_task(write()) for _ in range(6)]
    try:
        yield store
    finally:
        stop.set()
        await asyncio.gather(*writers)
        await store.aclose()


async def committed(url: str) -> Mapping[str, int]:
    """The truth: the last number of each key."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch("SELECT tenant || ':' || key, sequence FROM posthouse.key")
        return {str(key): int(sequence) for key, sequence in found}
    finally:
        await connection.close()


async def written(url: str, at_least: int) -> None:
    """Wait until so many were committed: a run with next to nothing shows nothing."""

    async def enough() -> bool:
        return sum((await committed(url)).values()) >= at_least

    await eventually(enough, within=40)


async def everything_arrived(house: House, url: str) -> int:
    """Wait until all that was committed was published; the number of repeats."""
    wanted = await committed(url)

    async def all_there() -> bool:
        lines = await asyncio.to_thread(house.lines)
        return len({(line.key, line.number) for line in lines}) == sum(wanted.values())

    await eventually(all_there, within=40)
    lines = house.lines()
    assert_in_order(numbers_of((line.key, line.number) for line in lines), wanted)
    return len(lines) - sum(wanted.values())


async def in_thread(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return await asyncio.to_thread(condition)

    await eventually(look, within=40)


@pytest.mark.slow
async def test_a_relay_killed_again_and_again_loses_and_inverts_nothing(house: House, logical_url: str) -> None:
    chance = random.Random(3)
    async with writing(logical_url):
        for _ in range(5):
            house.start()
            process = house.running[0].pid
            await in_thread(lambda process=process: house.followed()[process] > 50)  # type: ignore[misc]  # bound now
            await asyncio.sleep(chance.random() * 1.5)  # the moment of death is the test, not a wait for something
            await asyncio.to_thread(house.kill)
        house.start()
        await written(logical_url, 2000)
    repeats = await everything_arrived(house, logical_url)
    await asyncio.to_thread(house.end)
    assert house.killed == 5
    assert sum(house.followed().values()) > 5 * 50
    assert repeats <= house.killed * 2 * RATE, "no more than came in the seconds since the cursors moved last"


@pytest.mark.slow
async def test_two_relays_on_the_log_and_one_that_polls_are_killed_and_paused(house: House, logical_url: str) -> None:
    chance, paused = random.Random(9), 0
    async with writing(logical_url):
        for source in ("wal", "wal", "poll"):
            house.start(source)
        await in_thread(lambda: len(house.followed()) == 2)
        end = time.monotonic() + 18
        while time.monotonic() < end:
            which = chance.randrange(3)
            if chance.random() < 0.4:
                await asyncio.to_thread(house.kill, which)
                house.start(chance.choice(["wal", "wal", "poll"]))
            else:
                paused += 1
                os.kill(house.running[which].pid, signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(1.5, 3.0))  # as long as a lease, and twice as long
                os.kill(house.running[which].pid, signal.SIGCONT)
            await asyncio.sleep(chance.uniform(0.2, 1.0))
        await written(logical_url, 3000)
    repeats = await everything_arrived(house, logical_url)
    await asyncio.to_thread(house.end)
    assert house.killed >= 2
    assert paused >= 2
    assert sum(house.followed().values()) > 300
    assert repeats <= (house.killed + paused) * 3 * RATE


@pytest.fixture
def server() -> Iterator[RestartablePostgres]:
    try:
        folder = binaries()
    except Unavailable as error:
        give_up(f"no PostgreSQL that may be crashed: {error}")
    with restartable(folder, LOGICAL) as server:
        yield server


@pytest.mark.slow
async def test_a_server_that_is_restarted_under_load_takes_nothing_with_it(
    server: RestartablePostgres, tmp_path: Path
) -> None:
    house = House(server.url, tmp_path)
    try:
        async with writing(server.url):
            house.start()
            for restart in (server.stop, server.crash, server.stop, server.crash):
                before = sum(house.followed().values())
                await in_thread(lambda before=before: sum(house.followed().values()) > before + 100)  # type: ignore[misc]
                await asyncio.to_thread(restart)
                await asyncio.to_thread(server.start)
            before = sum(house.followed().values())
            await in_thread(lambda: sum(house.followed().values()) > before + 100)
            await written(server.url, 1000)
        repeats = await everything_arrived(house, server.url)
        await asyncio.to_thread(house.end)
    finally:
        house.clean_up()
    assert repeats <= 4 * 2 * RATE


@pytest.mark.slow
async def test_a_slot_that_the_server_gives_up_is_not_missed(
    server: RestartablePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is away, nobody reads the slot, and the server may keep little log."""
    monkeypatch.setattr("posthouse.stores.postgres.wal.receiving.LOOK", 600.0)
    monkeypatch.setattr("posthouse.stores.postgres.wal.unsent.MOST_ROWS", 5)
    sink, store = Sink(), PostgresStore(server.url)
    await store.upgrade()
    connection = await asyncpg.connect(server.url)
    await connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    await connection.execute("SELECT pg_reload_conf()")
    async with relaying(store, sink, RelaySettings(last_delay=0.2)) as tail:
        await following(tail)
        sink.away = True
        await add(store, *(row(f"k{number}") for number in range(20)))
        for turn in range(6):
            await connection.execute(
                f"CREATE TABLE filler{turn} AS SELECT repeat('x', 1000) FROM generate_series(1, 9000)"
            )
            await connection.execute("SELECT pg_switch_wal()")
        await connection.execute("CHECKPOINT")
        await eventually(lambda: tail.mode == "poll")
        assert await connection.fetchval("SELECT count(*) FROM pg_replication_slots") == 0
        sink.away = False
        await eventually(lambda: len(sink.frames) >= 20)
        await following(tail)
        await add(store, row("k0"))
        await eventually(lambda: len(set(sink.ids)) == 21)
        await settled(store)
    assert_in_order(sink.numbers(), {**{f"t1:k{number}": 1 for number in range(20)}, "t1:k0": 2})
    await connection.close()
    await store.aclose()


@pytest.mark.slow
async def test_a_failover_to_a_server_that_missed_the_last_commits_is_followed_again(
    server: RestartablePostgres,
) -> None:
    """The new server has no slot and an older cursor; what it never had may be published, what it has must be."""
    sink, store = Sink(), PostgresStore(server.url, patience=5.0)
    await store.upgrade()
    async with relaying(store, sink, RelaySettings(lease=1.0, last_delay=0.3)) as tail:
        await following(tail)
        await add(store, *(row(f"k{number}", event_id=f"old {number}") for number in range(10)))
        await settled(store)
        await asyncio.to_thread(server.back_up)
        await add_again(store, "lost")
        await eventually(lambda: sink.ids[-1:] == ["lost"])
        await asyncio.to_thread(server.fail_over)
        for number in range(10):
            await add_again(store, f"new {number}")
        await eventually(lambda: {f"new {number}" for number in range(10)} <= set(sink.ids))
        await following(tail)
        await add_again(store, "last")
        await eventually(lambda: sink.ids[-1:] == ["last"])
    await store.aclose()


async def add_again(store: PostgresStore, event_id: str) -> None:
    """As often as it takes: the server is about to come."""

    async def added() -> bool:
        with contextlib.suppress(PosthouseError):
            await add(store, row(event_id, event_id=event_id))
            return True
        return False

    await eventually(added)

"""Upgrades while others work: steps before and after a release, locks that are not to be had, several processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncpg
import psycopg
import pytest

import posthouse
from posthouse.broker import Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError
from posthouse.sending import Relay
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import TOPIC, row
from posthouse.testing.store_contract.steps import add

# A step that the present release can live with …
PRE = """
SELECT pg_sleep(0.3);  -- long enough for others to come
ALTER TABLE posthouse.outbox ADD COLUMN hue text;
CREATE TABLE posthouse.shade (hue text PRIMARY KEY);
"""
# … and one that it is not asked to.
POST = "DROP TABLE posthouse.shade;"


class NextRelease:
    """The package as it is, with two more migrations, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(Path(posthouse.__file__).parent, folder / "posthouse", ignore=shutil.ignore_patterns("*.pyc"))
        steps = folder / "posthouse" / "stores" / "postgres" / "migrations"
        (steps / "9998_next.sql").write_text(PRE)
        (steps / "9998_next.post.sql").write_text(POST)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "posthouse", *arguments],
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def upgrade(self, url: str, *options: str) -> Sequence[str]:
        done = self.run("db", "upgrade", url, "--json", *options)
        assert done.returncode == 0, done.stderr
        applied: list[str] = json.loads(done.stdout)["applied"]
        return applied


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> NextRelease:
    return NextRelease(tmp_path_factory.mktemp("next"))


@contextlib.contextmanager
def reading(url: str) -> Iterator[int]:
    """Somebody whose transaction has read the outbox and stays open; its process id."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT count(*) FROM posthouse.outbox")
        yield connection.info.backend_pid


class Load:
    """A writer and a relay of this release, at work until `ended`."""

    def __init__(self, store: PostgresStore) -> None:
        self.written = 0
        self.slowest = 0.0
        self.broker = MemoryBroker(clock=SystemClock())
        self._store = store
        self._stop = asyncio.Event()
        self._enough = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        await self.broker.ensure(Topology(topics=[TOPIC]))
        relay = Relay(self._store, self.broker, SystemClock())
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(relay.run(self._stop))]
        await self.wrote(20)

    async def wrote(self, more: int) -> None:
        wanted = self.written + more
        async with asyncio.timeout(20):
            while self.written < wanted:
                assert not self._tasks[0].done(), self._tasks[0].exception()
                await asyncio.sleep(0.01)

    async def end(self) -> list[str]:
        """The numbers that reached the broker, once all did."""
        self._enough = True
        await self._tasks[0]
        async with asyncio.timeout(20):
            while (await self._store.counts()).unsent:  # noqa: ASYNC110 - the relay sets no event of ours
                await asyncio.sleep(0.01)
        self._stop.set()
        await self._tasks[1]
        return [stored.frame.id for stored in self.broker.log.topics[TOPIC]]

    async def _write(self) -> None:
        while not self._enough:
            begun = time.monotonic()
            await add(self._store, row("k", event_id=f"e{self.written}"))
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.written += 1


async def test_a_process_of_the_old_release_works_on_while_the_new_one_upgrades(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    load = Load(store)
    await load.begin()
    assert await asyncio.to_thread(next_release.upgrade, postgres_url) == ["9998_next"]
    await load.wrote(50)
    late = PostgresStore(postgres_url)  # a process of the old release that starts after the upgrade
    assert await late.pending_migrations() == []
    assert await late.upgrade(post=True) == []
    await late.aclose()
    written = await load.end()
    assert written == [f"e{number}" for number in range(load.written)]
    assert load.written > 70


async def test_producers_do_not_wait_behind_an_upgrade_that_waits_for_a_reader(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    load = Load(store)
    await load.begin()
    load.slowest = 0.0
    with reading(postgres_url):
        upgrading = asyncio.create_task(asyncio.to_thread(next_release.upgrade, postgres_url))
        begun = time.monotonic()
        while time.monotonic() - begun < 3:  # the reader's time, in which several tries are made
            await load.wrote(10)
        assert not upgrading.done()
    assert await upgrading == ["9998_next"]
    await load.wrote(20)
    assert load.slowest < 1.5, "a producer queued behind the upgrade for longer than one short try"
    assert len(await load.end()) == load.written


async def test_an_upgrade_that_never_gets_its_lock_names_who_has_it(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    with reading(postgres_url) as pid:
        done = await asyncio.to_thread(next_release.run, "db", "upgrade", f"{postgres_url}?patience=1")
    assert done.returncode == 1
    assert f"SELECT pg_terminate_backend({pid})" in done.stderr
    assert "SELECT count(*) FROM posthouse.outbox" in done.stderr
    assert await add(store, row("k")) == 1


async def test_several_processes_upgrade_at_once_and_each_step_is_applied_once(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    processes = [next_release.start("db", "upgrade", postgres_url, "--post", "--json") for _ in range(4)]
    answers = [await asyncio.to_thread(process.communicate, timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, answers
    applied = [name for out, _ in answers for name in json.loads(out)["applied"]]
    assert sorted(applied) == ["9998_next", "9998_next.post"]


async def test_a_database_that_a_newer_release_finished_is_refused(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    assert await asyncio.to_thread(next_release.upgrade, postgres_url) == ["9998_next"]
    assert await asyncio.to_thread(next_release.upgrade, postgres_url, "--post") == ["9998_next.post"]
    older = PostgresStore(postgres_url)
    for attempt in (older.pending_migrations, older.upgrade, older.counts):
        with pytest.raises(StoreError, match=r"9998_next\.post.*upgrade the package"):
            await attempt()
    await older.aclose()


async def test_status_tells_what_a_service_needs_from_what_is_left(
    store: PostgresStore, postgres_url: str, next_release: NextRelease
) -> None:
    before = await asyncio.to_thread(next_release.run, "db", "status", postgres_url, "--json")
    assert before.returncode == 1
    assert json.loads(before.stdout)["pending"] == ["9998_next"]
    await asyncio.to_thread(next_release.upgrade, postgres_url)
    between = await asyncio.to_thread(next_release.run, "db", "status", postgres_url)
    assert between.returncode == 0, "a service can run"
    assert "left for --post" in between.stdout
    await asyncio.to_thread(next_release.upgrade, postgres_url, "--post")
    after = await asyncio.to_thread(next_release.run, "db", "status", postgres_url, "--json")
    assert set(json.loads(after.stdout)["migrations"].values()) == {"applied"}


async def test_a_new_database_gets_everything_at_once(postgres_url: str, next_release: NextRelease) -> None:
    applied = await asyncio.to_thread(next_release.upgrade, postgres_url)
    assert applied == ["0001_schema", "9998_next", "9998_next.post"]


async def test_the_printed_scripts_make_a_store(postgres_url: str, next_release: NextRelease) -> None:
    url = f"{postgres_url}?schema=events&shards=5"
    printed = await asyncio.to_thread(next_release.run, "db", "sql", url)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(printed.stdout)
    await connection.close()
    status = await asyncio.to_thread(next_release.run, "db", "status", url, "--json")
    assert json.loads(status.stdout)["pending"] == []
    assert set(json.loads(status.stdout)["migrations"].values()) == {"applied"}
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SELECT count(*) FROM events.shard") == 5
    await connection.close()


async def test_scripts_can_be_printed_from_a_number_on(postgres_url: str, next_release: NextRelease) -> None:
    printed = await asyncio.to_thread(next_release.run, "db", "sql", postgres_url, "--from", "9998")
    assert "CREATE TABLE posthouse.shade" in printed.stdout
    assert "DROP TABLE posthouse.shade" in printed.stdout
    assert "posthouse.meta" not in printed.stdout
    unknown = await asyncio.to_thread(next_release.run, "db", "sql", postgres_url, "--from", "9998_nex")
    assert unknown.returncode == 2
    assert "Did you mean '9998_next'?" in unknown.stderr

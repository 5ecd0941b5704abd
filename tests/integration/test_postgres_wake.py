"""How a commit is noticed: at once on this machine, by a hint on others, by looking where no hint comes through."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from posthouse.local.postgres import listening, sending
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add
from tests.kit.servers.postgres import PostgresServer, session
from tests.kit.waiting import eventually

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^posthouse/.*/listen '"
)


@pytest_asyncio.fixture
async def elsewhere(
    store: PostgresStore, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    """A store whose notifier lies in another folder, as on another machine."""
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        other = PostgresStore(postgres_url)
    yield other
    await other.aclose()


class Machine:
    """A process whose notifier nobody here hears."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout
        async with asyncio.timeout(20):
            return (await self._process.stdout.readline()).decode().strip()

    async def commit(self) -> float:
        """When the commit was done."""
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        return float(await self.line())


@contextlib.asynccontextmanager
async def another_machine(url: str, folder: Path) -> AsyncIterator[Machine]:
    script = Path(__file__).with_name("postgres_wake_member.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        machine = Machine(process)
        assert await machine.line() == "ready"
        yield machine
    finally:
        assert process.stdin
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)


async def noticed(store: PostgresStore) -> float:
    """When a store that has been idle for long noticed that something was committed."""
    seen = await store.changed(-1, 0)
    while (now := await store.changed(seen, 0.3)) != seen:
        seen = now
    await store.changed(seen, 20)
    return time.monotonic()


@pytest.mark.slow
async def test_a_hint_from_another_machine_is_quicker_than_looking(
    store: PostgresStore, postgres_url: str, tmp_path: Path
) -> None:
    looking = PostgresStore(postgres_url, pooler="transaction")
    assert await store.wake() == "socket + listen"
    assert (await looking.wake()).startswith("socket + polling every 0.1 s")
    hinted, polled = [], []
    async with another_machine(postgres_url, tmp_path) as machine:
        for turn in range(9):
            waits = [asyncio.create_task(noticed(one)) for one in (store, looking)]
            await asyncio.sleep(1.0 + 0.011 * turn)  # both are idle by then; no step with the polls
            committed = await machine.commit()
            quick, slow = await asyncio.gather(*waits)
            hinted.append(quick - committed)
            polled.append(slow - committed)
    await looking.aclose()
    assert statistics.median(hinted) < 0.05
    assert statistics.median(hinted) < statistics.median(polled) / 1.5
    assert max(polled) < 1.0


async def test_behind_a_pooler_commits_are_looked_for(postgres_url: str, pgbouncer: PostgresServer) -> None:
    url = pgbouncer.url_of(urlsplit(postgres_url).path.removeprefix("/"))
    pooled = PostgresStore(url, pooler="transaction")
    await pooled.upgrade()
    assert "no LISTEN through a pooler" in await pooled.wake()
    seen = await pooled.changed(-1, 0)
    async with session(postgres_url) as connection, connection.transaction():
        await pooled.outbox.append(pooled.join(connection), [row("k")])
    async with asyncio.timeout(5):
        while (now := await pooled.changed(seen, 5)) == seen:
            seen = now
    assert "socket + polling" in {c.name: c for c in await pooled.checks()}["wake-up"].found
    await pooled.aclose()


async def test_the_first_row_of_a_new_store_is_noticed_by_looking(postgres_url: str) -> None:
    looking = PostgresStore(postgres_url, pooler="transaction")
    await looking.upgrade()
    seen = await looking.changed(-1, 0)
    while (now := await looking.changed(seen, 0.3)) != seen:
        seen = now
    async with session(postgres_url) as connection, connection.transaction():
        await looking.outbox.append(looking.join(connection), [row("k")])
    async with asyncio.timeout(5):
        assert await looking.changed(seen, 20) != seen
    await looking.aclose()


async def test_a_url_round_the_pooler_lets_a_relay_listen(postgres_url: str, pgbouncer: PostgresServer) -> None:
    url = pgbouncer.url_of(urlsplit(postgres_url).path.removeprefix("/"))
    pooled = PostgresStore(url, pooler="transaction", listen_url=postgres_url)
    await pooled.upgrade()
    assert await pooled.wake() == "socket + listen"
    await pooled.aclose()


async def test_a_pooler_that_takes_a_listen_and_delivers_nothing_is_found_out(
    store: PostgresStore, postgres_url: str, pgbouncer: PostgresServer
) -> None:
    url = pgbouncer.url_of(urlsplit(postgres_url).path.removeprefix("/"))
    deceived = PostgresStore(postgres_url, listen_url=url)
    assert "no hint came through" in await deceived.wake()
    await deceived.aclose()


async def test_a_listener_that_the_server_cut_comes_back(
    store: PostgresStore, elsewhere: PostgresStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await store.wake() == "socket + listen"
    with caplog.at_level(logging.INFO, "posthouse.wake"):
        async with session(postgres_url) as connection:
            ended = [pid for (pid,) in await connection.fetch(LISTENERS)]
            assert len(ended) == 1
            await connection.execute(f"SELECT pg_terminate_backend({ended[0]})")

            async def again() -> bool:
                return any(pid not in ended for (pid,) in await connection.fetch(LISTENERS))

            await eventually(again)
            await eventually(lambda: is_listening(store))
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "polling every 0.1 s (no LISTEN" in line]
    assert said[-1] == "commits are noticed by socket + listen"


async def is_listening(store: PostgresStore) -> bool:
    return await store.wake() == "socket + listen"


async def test_a_producer_notifies_only_after_its_commit(store: PostgresStore, elsewhere: PostgresStore) -> None:
    assert await elsewhere.wake() == "socket + listen"
    said: list[str] = []
    async with store.begin() as tx:
        connection = tx.connection
        assert isinstance(connection, asyncpg.Connection)
        connection.add_query_logger(lambda query: said.append(query.query))
        await store.outbox.append(tx, [row("k")])
    assert said
    assert not [query for query in said if "notify" in query.lower()]
    async with store.begin() as tx:
        ours = (
            "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'posthouse'::regnamespace AND p.prosrc ~* 'notify'"
        )
        assert await tx.execute(ours) == []


@contextlib.asynccontextmanager
async def hints(url: str) -> AsyncIterator[list[float]]:
    """When each hint came."""
    heard: list[float] = []
    async with session(url) as connection:
        await connection.add_listener("posthouse posthouse", lambda *_: heard.append(time.monotonic()))
        yield heard


async def test_many_commits_are_two_hints_one_at_once_and_one_after_the_last(
    store: PostgresStore, elsewhere: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "APART", 1.0)
    assert await elsewhere.wake() == "socket + listen"
    async with hints(postgres_url) as heard:
        begun = time.monotonic()
        for _ in range(10):
            await add(store, row("k"))
        last = time.monotonic()
        assert last - begun < 0.9, "this machine is too slow to tell"
        await eventually(lambda: has(heard, 2))
        await asyncio.sleep(1.2)  # nothing more is to come
        assert len(heard) == 2
        assert heard[0] - begun < 0.9
        assert heard[1] > last


async def test_what_was_committed_just_before_the_end_is_told(
    store: PostgresStore, elsewhere: PostgresStore, postgres_url: str
) -> None:
    assert await elsewhere.wake() == "socket + listen"
    async with hints(postgres_url) as heard:
        ending = PostgresStore(postgres_url)
        await add(ending, row("k"))
        await ending.aclose()
        await eventually(lambda: has(heard, 1))


async def has(heard: list[float], count: int) -> bool:
    return len(heard) >= count


async def test_nobody_is_told_when_the_doorbell_reaches_everybody(store: PostgresStore, postgres_url: str) -> None:
    assert await store.wake() == "socket + listen"
    async with hints(postgres_url) as heard:
        for _ in range(20):
            await add(store, row("k"))
        await asyncio.sleep(20 * sending.APART)  # nothing is to come
        assert heard == []


async def test_a_role_without_rights_finds_the_listeners_of_others(
    store: PostgresStore, elsewhere: PostgresStore, postgres_url: str
) -> None:
    assert await elsewhere.wake() == "socket + listen"
    name = f"plain_{urlsplit(postgres_url).path.removeprefix('/')}"
    async with session(postgres_url) as connection:
        await connection.execute(f"CREATE ROLE {name}")
        await connection.execute(f"SET ROLE {name}")
        found = await connection.fetchval(sending.LISTENERS, "posthouse/%/listen %", "nobody")
        await connection.execute(f"RESET ROLE; DROP ROLE {name}")
    assert found is True


async def test_waiting_for_nothing_costs_next_to_nothing(store: PostgresStore) -> None:
    seen = await store.changed(-1, 0)
    while (now := await store.changed(seen, 0.5)) != seen:
        seen = now
    used = time.process_time()
    assert await store.changed(seen, 3.0) == seen
    assert time.process_time() - used < 0.3, "a tenth of a core, and this machine may be slow"


async def test_a_server_that_is_away_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "CONNECTING", 1.0)
    store = PostgresStore("postgresql://postgres@127.0.0.1:1/nowhere", patience=1)
    assert "polling every 0.1 s (no LISTEN:" in await store.wake()
    await store.aclose()

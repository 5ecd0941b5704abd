"""Fault 60: PgBouncer in transaction mode in front, restarted under load; and a whole fleet behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError
from posthouse.store import HeldFilter
from tests.faults.plant import at_work, booking, effects, say, settled
from tests.kit.servers.debian import environment
from tests.kit.servers.pgbouncer import program
from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PATIENCE, unprivileged

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
"""


class Pooler:
    """A PgBouncer that may be stopped and started again, on one port."""

    def __init__(self, binary: Path, place: Path, url: str) -> None:
        parts = urlsplit(url)
        port = free_port()
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        self._command = [str(binary), str(place / "pgbouncer.ini")]
        self._environment = environment(binary.parents[2])
        (place / "pgbouncer.ini").write_text(
            CONFIGURATION.format(host=parts.hostname, port=parts.port, user=parts.username, listen_port=port)
        )
        os.chmod(place, 0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            user=unprivileged(),
            cwd="/",
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the pooler did not start"
                time.sleep(0.02)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[Pooler]:
    if urlsplit(postgres_url).password:
        pytest.skip("the pooler is set up for a server that trusts")
    with tempfile.TemporaryDirectory(prefix="posthouse-pgbouncer-") as place:
        pooler = Pooler(program(), Path(place), postgres_url)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.end(signal.SIGINT)


async def stubborn(service: Service, key: str, number: int) -> None:
    while True:
        with contextlib.suppress(StoreError):
            return await say(service, key, number)
        await asyncio.sleep(0.02)


async def test_a_pooler_that_is_restarted_and_killed_under_load_loses_doubles_and_inverts_nothing(
    pooler: Pooler,
) -> None:
    service, over, restarts = booking(), asyncio.Event(), 0
    broker = PostgresBroker(pooler.url, clock=SystemClock(), pooled=True, lease=2.0)

    async def strike() -> None:
        nonlocal restarts
        while not over.is_set():
            await asyncio.sleep(0.7)  # how often it is struck is the fault
            await asyncio.to_thread(pooler.end, signal.SIGKILL if restarts % 2 else signal.SIGINT)
            await asyncio.to_thread(pooler.start)
            restarts += 1

    async with at_work(service, f"{pooler.url}?pooler=transaction&patience=5", broker):
        striking = asyncio.create_task(strike())
        for number in range(40):
            await asyncio.gather(*(stubborn(service, f"k{key}", number) for key in range(3)))
            await asyncio.sleep(0.05)
        over.set()
        await striking
        await settled(service, 60)
        assert restarts >= 2
        for key in range(3):
            assert await effects(service, f"k{key}") == list(range(40))
        assert await app_of(service).store.held.find(HeldFilter()) == []

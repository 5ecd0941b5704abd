"""Fault 20 on PostgreSQL: the disk is full. Events are refused clearly, reads work, space brings everything back."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from posthouse import Payload, Service
from posthouse.app import app_of
from posthouse.errors import StoreFull
from tests.faults.plant import Made, at_work, booking, effects, say, settled
from tests.kit.servers.postgres import PostgresServer, unprivileged

MEBIBYTE = 1024 * 1024


class Photographed(Payload):
    key: str
    image: str


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A file system of its own, that the server may write to. The machine's disk stays as it is."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("this user may not mount a file system")
    place = Path(tempfile.mkdtemp(prefix="posthouse-small-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        place.rmdir()
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        os.chown(place, unprivileged() or -1, -1)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


@pytest.fixture
def cramped(postgres_server: PostgresServer) -> Iterator[tuple[str, Path]]:
    """A database on a disk of 40 MB, of which a file takes ten: its URL and that file."""
    with small_disk("40m") as place, psycopg.connect(postgres_server.url, autocommit=True) as connection:
        ballast, home = place / "ballast", place / "home"
        ballast.write_bytes(bytes(10 * MEBIBYTE))
        home.mkdir()
        os.chown(home, unprivileged() or -1, -1)
        connection.execute(f"CREATE TABLESPACE cramped LOCATION '{home}'")
        connection.execute("CREATE DATABASE cramped TABLESPACE cramped")
        try:
            yield postgres_server.url_of("cramped"), ballast
        finally:
            connection.execute("DROP DATABASE cramped WITH (FORCE)")
            connection.execute("DROP TABLESPACE cramped")


async def fill(service: Service) -> tuple[int, str]:
    """Publish large events until they are refused; how many got in, and what the refusal said."""
    for number in range(1000):
        try:
            async with service.transaction("t1") as tx:
                tx.publish(Photographed(key="photo", image=os.urandom(75_000).hex()))
        except StoreFull as refusal:
            return number, str(refusal)
    raise AssertionError("it never got full")


async def test_a_full_disk_refuses_events_clearly_and_all_goes_on_when_there_is_room(
    cramped: tuple[str, Path],
) -> None:
    url, ballast = cramped
    service = booking()
    service.event("thing.photographed.v1", key="key")(Photographed)
    async with at_work(service, url, only=()):
        await say(service, "k", 1)
        fitted, refusal = await fill(service)
        assert fitted > 5
        assert "free some space and it goes on" in refusal
        counts = await app_of(service).store.counts()
        assert counts.committed == {"plant.thing": 1 + fitted}, "reads work, and nothing that was refused is there"
        ballast.unlink()
        await say(service, "k", 2)
    async with at_work(service, url):
        figures = await settled(service)
        assert await effects(service, "k") == [1, 2]
        assert [line.applied for line in figures.lines if line.committed] == [2 + fitted]


async def test_services_at_work_on_a_full_disk_lose_and_double_nothing(cramped: tuple[str, Path]) -> None:
    """Relay, consumer and producer meet the full disk at any of their steps, and nobody counts it as the event's fault."""
    url, ballast = cramped
    service = booking()
    service.event("thing.photographed.v1", key="key")(Photographed)
    said: list[int] = []
    async with at_work(service, url):
        refused = 0
        for number in range(400):
            try:
                async with service.transaction("t1") as tx:
                    tx.publish(Made(key="k", number=number))
                    tx.publish(Photographed(key=f"photo{number}", image=os.urandom(75_000).hex()))
                said.append(number)
            except StoreFull:
                refused += 1
            if refused > 20:
                break
        assert refused > 20
        ballast.unlink()
        async with service.transaction("t1") as tx:
            tx.publish(Made(key="k", number=1000))
        await settled(service)
        assert await effects(service, "k") == [*said, 1000]
        assert (await app_of(service).store.counts()).held == {}

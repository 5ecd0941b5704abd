"""Servers for the whole platform: a PostgreSQL with one database per service, and a NATS. As a program it plays the demonstration
on them: `python -m tests.kit.servers.house --bookings 60`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg import sql

from melmastoon.facts.everything import SERVICES
from tests.kit.servers import nats, postgres
from tests.kit.servers.memory import in_memory

MANY = {**postgres.SETTINGS, "max_connections": "600", "shared_buffers": "128MB"}
"""Each service is open in two processes, with a few connections each."""


class House(NamedTuple):
    """URLs, as `posthouse demo` wants them."""

    store: str
    broker: str


@contextmanager
def house() -> Iterator[House]:
    """Both servers, empty. Processes are killed here, servers never are: so the databases may be in memory."""
    with (
        postgres.running(postgres.binaries(), MANY, within=in_memory()) as url,
        nats.running() as broker,
    ):
        _make_databases(url, [service.name for service in SERVICES])
        server = url.rpartition("/")[0]
        yield House(f"{server}/{{service}}?writers=3", broker.url)


def _make_databases(url: str, names: Sequence[str]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def main() -> int:
    with house() as urls:
        print(f"stores: {urls.store}\nbroker: {urls.broker}", flush=True)
        command = [sys.executable, "-m", "posthouse", "demo", "--store", urls.store, "--broker", urls.broker]
        return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""A PgBouncer in transaction mode before the test server, where the machine has one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.servers.postgres import PATIENCE, PostgresServer, Unavailable, unprivileged

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
server_reset_query_always = 0
logfile = {folder}/log
"""


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[str]:
    """`host:port` of a pooler that hands each transaction to another session as it likes."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer on this machine")
    with _running(program, postgres_server.url) as place:
        yield place


@contextlib.contextmanager
def _running(program: str, url: str) -> Iterator[str]:
    server = urlsplit(url)
    folder = Path(tempfile.mkdtemp(prefix="posthouse-pgbouncer-"))
    user = unprivileged()
    if user is not None:
        os.chown(folder, user, -1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen: int = probe.getsockname()[1]
    (folder / "pgbouncer.ini").write_text(
        CONFIGURATION.format(host=server.hostname, port=server.port, user=server.username, listen=listen, folder=folder)
    )
    try:
        with subprocess.Popen(
            [program, "-q", str(folder / "pgbouncer.ini")],
            user=user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as pooler:
            try:
                _wait_until_it_answers(pooler, f"postgresql://{server.username}@127.0.0.1:{listen}/postgres")
                yield f"127.0.0.1:{listen}"
            finally:
                pooler.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(pooler: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while pooler.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=2).close()
            return
        time.sleep(0.02)
    raise Unavailable("pgbouncer does not answer")

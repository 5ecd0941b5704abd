"""A PgBouncer in transaction mode before the tests' PostgreSQL: the system's, or Debian's package unpacked without
installing it."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit.servers.debian import environment, unpacked
from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PATIENCE, PostgresServer, unprivileged
from tests.kit.servers.table import give_up, report

CONFIGURATION = """
[databases]
{databases}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
server_login_retry = 1
"""


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The same server behind a pooler: another connection may serve each transaction."""
    parts = urlsplit(postgres_server.url)
    if parts.password:
        pytest.skip("the pooler is set up for a server that trusts: give POSTHOUSE_TEST_POSTGRES without a password")
    with pooling(f"* = host={parts.hostname} port={parts.port or 5432} user={parts.username}") as port:
        yield PostgresServer(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl())


@functools.cache
def program() -> Path:
    """The binary, or the tests that need it are skipped."""
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    return Path(found) if found else unpacked("pgbouncer", "pgbouncer") / "usr" / "sbin" / "pgbouncer"


@contextlib.contextmanager
def pooling(databases: str) -> Iterator[int]:
    """A pooler before these databases, in the words of its own configuration; its port."""
    binary = program()
    with tempfile.TemporaryDirectory(prefix="posthouse-pgbouncer-") as place:
        port = free_port()
        file = Path(place) / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(databases=databases, listen_port=port))
        os.chmod(place, 0o755)
        with (
            (Path(place) / "log").open("w") as log,
            subprocess.Popen(
                [binary, str(file)],
                user=unprivileged(),
                cwd="/",
                env=environment(binary.parents[2]),
                stdout=log,
                stderr=subprocess.STDOUT,
            ) as pooler,
        ):
            try:
                _wait_until_it_answers(port, pooler, Path(place) / "log")
                said = [str(binary), "--version"]
                version = subprocess.run(
                    said, capture_output=True, text=True, env=environment(binary.parents[2])
                ).stdout
                report("pgbouncer", "real", f"{version.split()[1]}, {binary}")
                yield port
            finally:
                pooler.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pooler.wait(PATIENCE)


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                give_up("pgbouncer", f"it did not start: {error}\n{log.read_text()}")
        time.sleep(0.02)

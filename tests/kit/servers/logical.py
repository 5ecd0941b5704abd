"""A PostgreSQL whose log can be followed. It is always made here, also where POSTHOUSE_TEST_POSTGRES names another one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.kit.servers.postgres import SETTINGS, PostgresServer, Unavailable, binaries, give_up, running

LOGICAL = {**SETTINGS, "wal_level": "logical", "max_wal_size": "64MB", "checkpoint_timeout": "30s"}


@pytest.fixture(scope="module")
def logical_server() -> Iterator[PostgresServer]:
    """One server with wal_level=logical."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(running(binaries(), LOGICAL))
        except Unavailable as error:
            give_up(f"no PostgreSQL with a log to follow: {error}")
        yield PostgresServer(url)


@pytest.fixture
def logical_url(logical_server: PostgresServer) -> Iterator[str]:
    """The URL of a database on it that this test has to itself."""
    with logical_server.database() as url:
        yield url

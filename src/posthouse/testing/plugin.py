"""The pytest plugin: `pytest_plugins = ["posthouse.testing.plugin"]` in your conftest.py, and tests have a PostgreSQL database.

It is not loaded by itself, so that it costs nothing in projects that do not ask for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from posthouse.testing.scratch import ScratchDatabase

VARIABLE = "POSTHOUSE_TEST_SERVER"
OPTION = "posthouse_test_server"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "URL of a PostgreSQL server on which the session makes a database of its own", default="")


@pytest.fixture(scope="session")
def posthouse_server(pytestconfig: pytest.Config) -> str:
    """The URL of a PostgreSQL server whose role may make databases: POSTHOUSE_TEST_SERVER, else `posthouse_test_server` of the
    pytest configuration. Override it to take one from elsewhere, as from a container. The database that it names is only
    connected to."""
    found = os.environ.get(VARIABLE) or str(pytestconfig.getini(OPTION))
    if not found:
        pytest.fail(
            f"no PostgreSQL server is named for tests: set {VARIABLE}, or {OPTION} in the pytest configuration, to a URL such as "
            "postgresql://postgres@localhost/postgres. The session makes a database of its own there, and drops it",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="session")
def posthouse_schema() -> str:
    """The schema that Posthouse's tables are in; override it where your store's URL says `?schema=…`."""
    return "posthouse"


@pytest.fixture(scope="session")
def _posthouse_scratch(posthouse_server: str) -> Iterator[ScratchDatabase]:
    from posthouse.testing.scratch import ScratchDatabase

    scratch = ScratchDatabase(posthouse_server)
    try:
        scratch.make()
        yield scratch
    finally:
        scratch.drop()


@pytest.fixture(scope="session")
def posthouse_url(_posthouse_scratch: ScratchDatabase) -> str:
    """The URL of the database that this session, or this worker of it, has to itself; for your own engine and migrations."""
    return _posthouse_scratch.url


@pytest.fixture(scope="session")
def posthouse_tables(posthouse_url: str) -> None:
    """Override it to make your own tables in the database, with the rows that every test may count on."""


@pytest.fixture(scope="session")
def posthouse_database(
    _posthouse_scratch: ScratchDatabase, posthouse_tables: None, posthouse_schema: str
) -> ScratchDatabase:
    """The database with all tables, yours and Posthouse's; `reset()` puts it back as it is now."""
    _posthouse_scratch.upgrade(posthouse_schema)
    _posthouse_scratch.keep()
    return _posthouse_scratch


@pytest.fixture
def posthouse_store(posthouse_database: ScratchDatabase, posthouse_schema: str) -> Iterator[str]:
    """The URL of the store, for `Harness(…, store=posthouse_store)`. The database is as it was after `posthouse_tables` when the
    test begins, and again when it ends: Posthouse's tables, yours, and all sequences."""
    from posthouse.testing.scratch import store_url

    posthouse_database.reset()
    yield store_url(posthouse_database.url, posthouse_schema)
    posthouse_database.reset()

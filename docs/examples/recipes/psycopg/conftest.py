"""Tests on PostgreSQL: POSTHOUSE_TEST_SERVER names a server, where the session makes a database of its own and drops it."""

import os
from types import ModuleType

import pytest

pytest_plugins = ["posthouse.testing.plugin"]


@pytest.fixture(scope="session")
def posthouse_tables(posthouse_url: str) -> None:
    os.environ["DATABASE_URL"] = posthouse_url  # before the script is imported
    import shop

    shop.main("init-db")


@pytest.fixture
def script(posthouse_store: str) -> ModuleType:
    import shop

    return shop

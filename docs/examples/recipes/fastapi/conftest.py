"""Tests on PostgreSQL: POSTHOUSE_TEST_SERVER names a server, where the session makes a database of its own and drops it."""

import os
from collections.abc import AsyncIterator
from types import ModuleType

import httpx
import pytest
from alembic import command
from alembic.config import Config

pytest_plugins = ["posthouse.testing.plugin"]


@pytest.fixture(scope="session")
def posthouse_tables(posthouse_url: str) -> None:
    """The migrations are tested with everything else."""
    os.environ["DATABASE_URL"] = posthouse_url  # before the application is imported
    command.upgrade(Config("alembic.ini"), "head")


@pytest.fixture
def app(posthouse_store: str) -> ModuleType:
    import app

    return app


@pytest.fixture
async def client(app: ModuleType) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app.app), base_url="http://shop") as client:
        yield client
    await app.engine.dispose()

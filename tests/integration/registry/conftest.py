"""Registries to ask: one on each store, and one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.integration.registry.client import Client, served
from tests.kit.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a registry is kept: once a file, once a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'registry.db'}"
        return
    server = cast(PostgresServer, request.getfixturevalue("postgres_server"))
    with server.database() as url:
        yield url


@pytest.fixture
async def registry(store_url: str) -> AsyncIterator[Client]:
    """A registry on each store."""
    async with served(store_url) as client:
        yield client


@pytest.fixture
async def quick() -> AsyncIterator[Client]:
    """A registry in memory, for what no store decides."""
    async with served("sqlite://") as client:
        yield client

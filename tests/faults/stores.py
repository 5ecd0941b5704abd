"""Stores: the same test on a database in memory and on PostgreSQL. Statements are written for SQLite and reworded."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from typing import Self

import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.testing import Harness, rehost
from posthouse.watch.status import Status

_url = ""
"""The PostgreSQL database of the test that runs; empty: SQLite."""


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every harness of this test keeps its stores there."""
    global _url
    _url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    yield request.param
    _url = ""


def store_url(name: str, otherwise: str) -> str:
    """Where a service of this name has its store."""
    return f"{_url}?schema={name}&writers=4" if _url else otherwise


def worded(sql: str, service: str = "") -> str:
    """A statement for the database in use: `?` by number, `{id}` as a key that counts, `posthouse_x` in its schema."""
    if not _url:
        return sql.replace("{id}", "id INTEGER PRIMARY KEY")
    numbers = itertools.count(1)
    sql = sql.replace("{id}", "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    sql = re.sub(r"\bposthouse_(\w+)", rf"{service}.\1", sql)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


class House(Harness):
    """The harness, with the stores where this test wants them."""

    async def __aenter__(self) -> Self:
        if not _url:
            return await super().__aenter__()
        try:
            for service in self.services:
                self._before.append(
                    rehost(
                        service,
                        store=store_url(service.name, ""),
                        broker=self.broker,
                        clock=self.clock,
                        secrets=self._under_own_keys(app_of(service).opened.secrets),
                    )
                )
                await app_of(service).store.upgrade()
                self._runtimes.append(await app_of(service).opened.prepare())
        except BaseException:
            await self._restore()
            raise
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self._runtimes]
        return self

    async def settled(self, timeout: float = 60.0) -> Status:
        return await super().settled(timeout)


async def upgraded(service: Service) -> None:
    """What `posthouse db upgrade` does, where a service does not do it by itself."""
    if not app_of(service).store.embedded:
        await app_of(service).store.upgrade()

"""The console while something is wrong with one store of two: every page answers, says what is wrong, and shows the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Service
from posthouse.clock import SystemClock
from posthouse.console.asking import Ask, Refusal
from posthouse.console.estate import Estate, Problem
from posthouse.console.pages import TABLES
from posthouse.stores.postgres import PostgresStore, schema
from tests.kit.console import ADMIN
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres
from tests.kit.waiting import eventually

__all__ = ["restartable_postgres"]

QUERIES: Mapping[str, Mapping[str, str]] = {
    "/keys": {"topic": "stall.order", "tenant": "t1", "key": "o1"},
    "/events": {"q": "o1"},
}
PATHS = sorted(path for path in TABLES if "{" not in path)


def a_service(name: str) -> Service:
    service = Service(name)

    @service.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @service.on(OrderPlaced)
    async def bill(event: Event[OrderPlaced]) -> None: ...

    return service


class Looker:
    """Somebody who opens every page."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    async def get(self, path: str) -> tuple[Any, list[Problem]]:
        """What a page shows, None where it is refused as a whole, and its problems."""
        ask = Ask(estate=self.estate, who=ADMIN, path={}, query=QUERIES.get(path, {}))
        try:
            data = msgspec.json.decode(msgspec.json.encode(await TABLES[path](ask)))
        except Refusal as refusal:
            if refusal.status != 503:
                raise
            return None, [Problem("", refusal.message, refusal.hint)]
        return data, ask.problems

    async def all(self) -> dict[str, tuple[Any, list[Problem]]]:
        async with asyncio.timeout(60):
            return {path: await self.get(path) for path in PATHS}


@pytest_asyncio.fixture
async def looker(
    restartable_postgres: RestartablePostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Looker]:
    """Over `shop` on PostgreSQL and `stall` in a file. Nothing of the console's own may fail meanwhile."""
    url = restartable_postgres.url
    store = PostgresStore(url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()
    log = f"embedded:///{tmp_path}/log.db?single_host=true"
    stall = App(a_service("stall"), store=f"sqlite:///{tmp_path}/stall.db", broker=log)
    await stall.open()
    await stall.aclose()
    estate = Estate(App(a_service("shop"), store=url, broker=log), stall)
    yield Looker(estate)
    await estate.aclose()
    failed = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not [words for words in failed if "a question to" in words]


def shown(pages: Mapping[str, tuple[Any, list[Problem]]]) -> None:
    """Each page answered; what there is of the one that is well is shown, and the other is named with what to do."""
    for path, (data, problems) in pages.items():
        assert data is not None, (path, problems)
        assert {problem.service for problem in problems} <= {"shop"}, (path, problems)
        assert all(problem.what and problem.do for problem in problems), path
    assert {one["name"] for one in pages["/services"][0]["items"]} == {"shop", "stall"}
    assert {node["name"] for node in pages["/map"][0]["nodes"]} >= {"shop", "stall"}
    assert [problem.service for problem in pages["/home"][1]] == ["shop"]
    assert [problem.service for problem in pages["/held"][1]] == ["shop"]


async def test_a_server_that_dies_while_somebody_looks_hides_nobody_else_and_is_there_again(
    looker: Looker, restartable_postgres: RestartablePostgres
) -> None:
    assert not [problem for _, problems in (await looker.all()).values() for problem in problems]
    over = asyncio.Event()

    async def look(path: str) -> int:
        number = 0
        while not over.is_set():
            data, problems = await looker.get(path)
            assert data is not None, (path, problems)
            assert {problem.service for problem in problems} <= {"shop"}, (path, problems)
            number += 1
        return number

    looks = [asyncio.create_task(look(path)) for path in ("/home", "/held", "/sagas", "/consumers", "/outbox")]
    await eventually(lambda: looker.get("/held"), right=lambda answer: not answer[1])
    await asyncio.to_thread(restartable_postgres.crash)
    await eventually(lambda: looker.get("/held"), right=lambda answer: [one.service for one in answer[1]] == ["shop"])
    shown(await looker.all())
    over.set()
    assert all(await asyncio.gather(*looks))
    await asyncio.to_thread(restartable_postgres.start)
    await eventually(looker.all, right=lambda pages: not [one for _, problems in pages.values() for one in problems])


async def test_tables_that_lack_a_migration_are_told_of_on_every_page_until_they_have_it(
    looker: Looker, restartable_postgres: RestartablePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "migrations", lambda: [schema.FIRST, "0002_of_the_next_release"])
    pages = await looker.all()
    shown(pages)
    [problem] = pages["/home"][1]
    assert "lacks 0002_of_the_next_release" in problem.what
    assert "posthouse db upgrade" in problem.do
    session: Any = await asyncpg.connect(restartable_postgres.url)
    await session.execute("INSERT INTO posthouse.migration (name) VALUES ('0002_of_the_next_release')")
    await session.close()
    await eventually(looker.all, right=lambda pages: not [one for _, problems in pages.values() for one in problems])


@pytest.mark.parametrize("path", ["/held/{service}/{id}", "/jobs/{service}/{id}"])
async def test_what_is_asked_of_the_store_that_is_away_is_refused_with_what_to_do(
    looker: Looker, restartable_postgres: RestartablePostgres, path: str
) -> None:
    await asyncio.to_thread(restartable_postgres.crash)
    ask = Ask(estate=looker.estate, who=ADMIN, path={"service": "shop", "id": "1"}, query={})
    with pytest.raises(Refusal) as refused:
        await TABLES[path](ask)
    assert (refused.value.status, refused.value.message.partition(":")[0]) == (503, "shop")
    assert "is the server up" in refused.value.hint

"""The estate: every service that can be asked answers, whatever is wrong with the others."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse import App, Service
from posthouse.console import estate as module
from posthouse.console.asking import Refusal
from posthouse.console.estate import Estate
from posthouse.errors import ConfigurationError
from posthouse.store import Counts
from tests.kit.servers.ports import free_port
from tests.kit.waiting import eventually


def an_app(name: str, folder: Path, store: str = "") -> App:
    return App(
        Service(name),
        store=store or f"sqlite:///{folder}/{name}.db",
        broker=f"embedded:///{folder}/log.db?single_host=true",
    )


@pytest_asyncio.fixture
async def orders(tmp_path: Path) -> AsyncIterator[App]:
    """One that is well."""
    app = an_app("orders", tmp_path)
    await app.open()
    await app.aclose()
    yield app
    await app.aclose()


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def counts(app: App) -> Counts:
    return await app.store.counts()


@contextlib.asynccontextmanager
async def opened(estate: Estate) -> AsyncIterator[Estate]:
    await estate.load()
    try:
        yield estate
    finally:
        await estate.aclose()


async def test_all_that_are_well_answer_and_one_that_is_down_is_a_problem(orders: App, tmp_path: Path) -> None:
    down = an_app("billing", tmp_path, f"postgresql://u:secret@127.0.0.1:{free_port()}/none")
    async with opened(Estate(orders, down)) as estate:
        told = await estate.each(counts)
    assert list(told.found) == ["orders"]
    (problem,) = told.problems
    assert problem.service == "billing"
    assert "is the server up" in problem.do
    assert "secret" not in problem.what


async def test_a_store_that_hangs_keeps_nobody_waiting_long_and_is_taken_up_again(orders: App) -> None:
    hangs = asyncio.Event()

    async def asked(app: App) -> int:
        if not hangs.is_set():
            await hangs.wait()
        return 1

    async with opened(Estate(orders)) as estate:
        told = await estate.each(asked, within=0.05)
        assert "no answer within" in told.problems[0].what
        hangs.set()
        assert (await estate.each(asked)).found == {"orders": 1}


async def test_a_server_that_takes_connections_and_says_nothing_is_doubted_in_short_time(
    orders: App, tmp_path: Path
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        down = an_app("billing", tmp_path, f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/none")
        async with opened(Estate(orders, down)) as estate:
            first = await estate.each(counts, within=0.2)
            async with asyncio.timeout(module.DOUBTED_WITHIN + 2):
                second = await estate.each(counts, within=60)
    for told in (first, second):
        assert list(told.found) == ["orders"]
        assert [problem.service for problem in told.problems] == ["billing"]


async def test_looking_makes_no_file_and_one_that_comes_later_is_taken_up(tmp_path: Path) -> None:
    app = an_app("orders", tmp_path)
    async with opened(Estate(app)) as estate:
        told = await estate.each(counts)
        assert "orders.db" in told.problems[0].what
        assert files(tmp_path) == []
        maker = an_app("orders", tmp_path)
        await maker.open()
        await maker.aclose()
        assert list((await estate.each(counts)).found) == ["orders"]


async def test_older_tables_are_a_problem_until_they_are_brought_up_to_date(orders: App, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "orders.db")) as database, database:
        (last,) = database.execute("SELECT max(name) FROM posthouse_migration").fetchone()
        database.execute("DELETE FROM posthouse_migration WHERE name = ?", [last])
    async with opened(Estate(orders)) as estate:
        (problem,) = (await estate.each(counts)).problems
        assert last in problem.what
        assert "posthouse db upgrade" in problem.do
        with contextlib.closing(sqlite3.connect(tmp_path / "orders.db")) as database, database:
            database.execute("INSERT INTO posthouse_migration (name, applied_at) VALUES (?, 0)", [last])
        assert list((await estate.each(counts)).found) == ["orders"]


async def test_a_service_that_cannot_be_imported_is_a_problem_until_it_can(
    orders: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "LOADED_AGAIN", 0.0)
    source = tmp_path / "broken_billing.py"
    source.write_text("raise RuntimeError('no password=hunter2 given')\n")

    def load() -> Sequence[Service]:
        sys.modules.pop("broken_billing", None)
        return [importlib.import_module("broken_billing").billing]

    async with opened(Estate(orders, loading={"broken_billing:billing": load})) as estate:
        told = await estate.each(counts)
        assert list(told.found) == ["orders"]
        (problem,) = told.problems
        assert problem.service == "broken_billing:billing"
        assert "no password" in problem.what
        assert "hunter2" not in problem.what
        source.write_text("from posthouse import Service\n\nbilling = Service('billing_that_is_longer')\n")
        await eventually(lambda: _loaded(estate), right=lambda found: "billing_that_is_longer" in found)
        assert not estate.problems


async def _loaded(estate: Estate) -> Sequence[str]:
    await estate.each(counts)
    return list(estate.services)


async def test_two_services_of_one_name_are_refused_or_told_of(orders: App, tmp_path: Path) -> None:
    twin = Service("orders")
    with pytest.raises(ConfigurationError, match="two services are called 'orders'"):
        Estate(orders, twin)
    async with opened(Estate(orders, loading={"shop:twin": lambda: [twin]})) as estate:
        assert [problem.service for problem in estate.problems] == ["shop:twin"]
        assert estate.service("orders") is orders.services[0]


async def test_one_service_is_asked_by_name_or_refused_with_the_nearest(orders: App, tmp_path: Path) -> None:
    away = an_app("billing", tmp_path)
    async with opened(Estate(orders, away)) as estate:
        assert (await estate.one("orders", counts)).timers == 0
        with pytest.raises(Refusal, match="Did you mean 'orders'") as unknown:
            await estate.one("order", counts)
        assert unknown.value.status == 404
        with pytest.raises(Refusal, match=r"billing\.db") as gone:
            await estate.one("billing", counts)
        assert gone.value.status == 503
        assert gone.value.hint


async def test_a_mistake_in_a_question_is_a_problem_of_one_service_and_stays_in_the_log(
    orders: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong(app: App) -> None:
        raise KeyError("secret")

    async with opened(Estate(orders)) as estate:
        told = await estate.each(wrong)
    assert told.problems[0].what == "it cannot be shown: KeyError"
    assert "secret" in caplog.text


async def test_an_app_that_somebody_else_opened_stays_open(orders: App, tmp_path: Path) -> None:
    await orders.open()
    kept = orders.opened
    async with opened(Estate(orders)) as estate:
        await estate.each(counts)
    assert orders.opened is kept

"""Commands that only read make nothing: no file, no table, no topic, no group. Every verb is in one of the lists below."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.main import get_command

from posthouse.app import apps_of
from posthouse.cli import app
from posthouse.cli.target import load
from posthouse.cli.verbs import VERBS
from posthouse.watch.address import Address, address_of, listening
from posthouse.watch.serving import serving
from tests.kit.waiting import eventually
from tests.unit.cli.conftest import SHOP, Project

MORE = """

from posthouse.processes import Model, Run, Saga, Turn, starts


@orders.saga("booking", correlate="order_id")
class Booking(Saga):
    order_id: str

    @starts
    def hold(self, turn: Turn) -> None:
        pass


orders.aggregate("order", initial=int, evolve=lambda count, _: count + 1, events=(OrderPlaced,))


@orders.every("0 6 1 1 *")
async def sweep(run: Run, tx: Tx) -> None:
    pass


listings = orders.projection("listings")


@listings.setup
async def listing_tables(model: Model) -> None:
    await model.execute(f"CREATE TABLE {model.table('listing')} (id TEXT PRIMARY KEY)")


@listings.on(OrderPlaced)
async def listed(event: Event[OrderPlaced], model: Model) -> None:
    pass
"""


@pytest.fixture
def project(project: Project) -> Project:
    """With a saga and a projection besides."""
    project.write("shop.py", SHOP + MORE)
    return project


@pytest.fixture
def poisoned(project: Project) -> Project:
    """As the others' of that name; the read model has applied all four."""
    project.place(("a", 100), ("bad", -1), ("bad", 7), ("b", 200))
    project.settle(applied=6, held=2)
    return project


LOOKS = {
    "status": ["shop"],
    "status --json": ["shop"],
    "status --verbose": ["shop"],
    "held list": ["shop"],
    "held show": ["shop", "1"],
    "held export": ["shop"],
    "actions": ["shop"],
    "outbox list": ["shop"],
    "outbox resend --dry-run": ["shop"],
    "jobs list": ["shop"],
    "saga list": ["shop"],
    "saga check": ["shop"],
    "saga dump": ["shop", "--to", "histories.jsonl"],
    "saga show": ["shop", "booking", "b1"],
    "saga tasks": ["shop"],
    "stream show": ["shop", "order", "o1", "--tenant", "t1"],
    "replay --dry-run": ["shop", "--consumer", "orders", "--from", "outbox"],
    "retention status": ["shop"],
    "retention plan": ["shop"],
    "schedule list": ["shop"],
    "projection list": ["shop"],
    "projection status": ["shop"],
    "timers": ["shop"],
    "trace": ["0199a8f0-0000-7000-8000-000000000000", "shop"],
    "seek --dry-run": ["shop", "--time", "2020-01-01T00:00:00Z"],
    "db restored --dry-run": ["shop"],
    "schema versions": ["shop"],
    "grant list": ["shop"],
    "grant show": ["shop", "1"],
}
"""Those that need a store: where there is none they say so, with its name."""

READS = {
    "doctor": ["shop"],
    "topics": ["shop"],
    "topology plan": ["shop"],
    "db status": ["shop"],
    "db sql": ["shop"],
    "catalog show": ["shop"],
    "flow list": ["shop"],
}
"""Those that have something to say all the same."""

DECIDES = {
    "held retry": ["shop", "1"],
    "held skip": ["shop", "1"],
    "held edit": ["shop", "1", "--set", "total_cents=1"],
    "held release": ["shop", "1"],
    "held quarantine": ["shop", "1"],
    "outbox retry": ["shop", "1"],
    "outbox resend": ["shop", "--yes"],
    "outbox accept-loss": ["shop", "--consumer", "orders", "--topic", "shop.orders.order", "--why", "gone", "--yes"],
    "timers --cancel": ["nothing", "shop", "--tenant", "t1"],
    "seek": ["shop", "--time", "2020-01-01T00:00:00Z", "--yes"],
    "jobs start": ["shop", "held.skip.all", "--why", "gone", "--yes"],
    "jobs show": ["shop", "nothing"],
    "jobs pause": ["shop", "nothing"],
    "jobs resume": ["shop", "nothing"],
    "jobs cancel": ["shop", "nothing"],
    "jobs run": ["shop"],
    "saga retry": ["shop", "booking", "b1"],
    "saga resume": ["shop", "booking", "b1"],
    "saga cancel": ["shop", "booking", "b1", "--reason", "closed", "--yes"],
    "saga index": ["shop"],
    "stream archive": ["shop", "order", "o1", "--tenant", "t1"],
    "stream restore": ["shop", "order", "o1", "--tenant", "t1"],
    "stream delete": ["shop", "order", "o1", "--tenant", "t1", "--yes"],
    "replay": ["shop", "--consumer", "orders", "--from", "outbox", "--why", "mended", "--yes"],
    "retention apply": ["shop", "--why", "old", "--yes"],
    "schedule pause": ["shop", "sweep"],
    "schedule resume": ["shop", "sweep"],
    "schedule run": ["shop", "sweep"],
    "schedule forget": ["shop", "sweep"],
    "projection rebuild": ["shop", "listings"],
    "projection drop": ["shop", "listings", "--yes"],
    "db restored": ["shop", "--yes"],
    "grant approve": ["shop", "1"],
    "grant revoke": ["shop", "1"],
}
"""An operator's verbs: without a store there is nothing to decide, and none is made for it."""

OTHERS = {
    "quickstart": "makes a folder of its own",
    "new": "makes a project",
    "run": "runs",
    "console": "serves until it is ended; what it makes is asked in tests/unit/console",
    "watch": "serves until it is ended; what it makes is asked below",
    "saga draw": "opens nothing",
    "saga replay": "opens nothing",
    "catalog freeze": "writes the files that it is asked for",
    "catalog check": "opens nothing",
    "catalog export": "writes the files that it is asked for",
    "export alerts": "writes the files that it is asked for",
    "export dashboards": "writes the files that it is asked for",
    "export runbooks": "writes the files that it is asked for",
    "catalog bundle": "writes the file that it is asked for",
    "stream export": "writes the file that it is asked for; tests/unit/cli/test_stream.py",
    "stream check": "opens a file of an export",
    "archive status": "needs an archive to be configured; tests/unit/cli/test_archive.py",
    "archive verify": "needs an archive to be configured",
    "archive query": "needs an archive to be configured",
    "archive expire": "needs an archive to be configured",
    "archive adopt": "needs an archive to be configured",
    "audit status": "opens the files of an audit log",
    "audit verify": "opens the files of an audit log",
    "audit prove": "opens the files of an audit log",
    "audit check": "opens a proof",
    "audit consistency": "opens the files of an audit log",
    "audit checkpoint": "signs the files of an audit log",
    "schema check": "opens nothing",
    "schema diff": "opens nothing",
    "schema retire": "writes into the files of the catalogue",
    "contract verify": "opens nothing",
    "contract write": "writes the files that it is asked for",
    "check": "opens nothing",
    "flow draw": "opens nothing",
    "topology apply": "makes topics",
    "db roles": "makes grants, by --apply alone",
    "db upgrade": "makes tables",
    "export rights": "opens nothing",
    "grant request": "needs a reason and a scope before it asks a store; tests/unit/cli/test_grant.py",
    "keys new": "writes the files that it is asked for",
    "keys list": "opens files of keys",
    "keys check": "opens files of keys",
    "keys retire": "writes into the file of keys",
    "keys revoke": "writes into the file of keys",
    "subject list": "needs secrets to be configured, and asks their store",
    "subject show": "needs secrets to be configured, and asks their store",
    "subject erase": "needs secrets to be configured, and asks their store",
    "subject reapply": "needs secrets to be configured, and asks their store",
    "subject upgrade": "needs secrets to be configured, and makes their tables",
    "registry serve": "serves",
    "registry user": "prints a line",
}


def verbs() -> list[str]:
    """Every command that there is."""
    group: Any = get_command(app)
    found: list[str] = []
    with group.make_context("posthouse", [], resilient_parsing=True) as ctx:
        for verb in VERBS:
            real = group.get_command(ctx, verb).make_context(verb, [], parent=ctx, resilient_parsing=True).command
            found += [f"{verb} {name}" for name in getattr(real, "commands", ())] or [verb]
    return found


def test_every_verb_is_in_one_of_the_lists() -> None:
    known = {words.partition(" --")[0] for words in (*LOOKS, *READS, *DECIDES, *OTHERS)}
    assert set(verbs()) == known


def listing(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


def contents(folder: Path) -> list[str]:
    """Every table of every database, with its rows."""
    said: list[str] = []
    for file in sorted(folder.glob("*.db")):
        connection = sqlite3.connect(file)
        said += [f"{file.name}: {line}" for line in connection.iterdump()]
        connection.close()
    return said


@pytest.mark.parametrize("verb", [*LOOKS, *READS, *DECIDES])
def test_where_nothing_is_nothing_is_made(project: Project, verb: str) -> None:
    (project.folder / "order.db").touch()
    before = listing(project.folder)
    result = project.run(*verb.split(), *{**LOOKS, **READS, **DECIDES}[verb])
    assert listing(project.folder) == before
    if verb not in READS:
        assert result.exit_code == 2, result.output
        said = " ".join(result.stderr.split())
        assert f"{project.folder / 'orders.db'} is not there." in said
        assert "Did you mean 'order.db'?" in said
        assert "`posthouse db upgrade " in said


def test_what_is_there_stays_as_it_is(poisoned: Project) -> None:
    files, rows = listing(poisoned.folder), contents(poisoned.folder)
    for verb, arguments in {**LOOKS, **READS}.items():
        result = poisoned.run(*verb.split(), *arguments)
        assert "is not there" not in result.output, verb
        assert (listing(poisoned.folder), contents(poisoned.folder)) == (files, rows), verb


@pytest.mark.parametrize("verb", LOOKS)
def test_a_database_of_somebody_else_gets_no_tables(project: Project, verb: str) -> None:
    connection = sqlite3.connect(project.folder / "orders.db")
    connection.execute("CREATE TABLE theirs (id INTEGER)")
    connection.close()
    before = (project.folder / "orders.db").read_bytes()
    result = project.run(*verb.split(), *LOOKS[verb])
    assert result.exit_code == 2
    assert "has no tables of Posthouse" in result.stderr
    assert (project.folder / "orders.db").read_bytes() == before


def test_a_log_that_is_not_there_is_named_and_not_made(poisoned: Project) -> None:
    """What was sent and applied is known all the same; what was sent and is nowhere, nobody can tell without the log."""
    (poisoned.folder / "posthouse-log.db").rename(poisoned.folder / "posthouse-lag.db")
    connection = sqlite3.connect(poisoned.folder / "orders.db")
    connection.execute("DELETE FROM posthouse_held")
    connection.commit()
    connection.close()
    before = listing(poisoned.folder)
    result = poisoned.run("status", "shop")
    assert result.exit_code == 3
    assert (
        f"the log {poisoned.folder / 'posthouse-log.db'} is not there. Did you mean 'posthouse-lag.db'?"
        in result.stdout
    )
    assert poisoned.run("seek", "shop", "--time", "2020-01-01T00:00:00Z", "--yes").exit_code == 2
    assert poisoned.run("topology", "plan", "shop").exit_code == 2
    assert poisoned.run("doctor", "shop").exit_code == 1, "events were sent to it"
    assert listing(poisoned.folder) == before


@asynccontextmanager
async def watching(project: Project) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """What a scrape of a watch says."""
    project.forget()
    apps = apps_of([load("shop")])
    listener = listening(Address("127.0.0.1", 0))

    async def scrape() -> str:
        return (await client.get(f"http://{address_of(listener)}/metrics")).text

    async with httpx.AsyncClient() as client, serving(listener, apps, runs=False):
        yield scrape
    for one in apps:
        await one.aclose()


def test_a_watch_makes_nothing(poisoned: Project) -> None:
    async def watch() -> None:
        async with watching(poisoned) as scrape:
            assert 'posthouse_store_up{service="orders"} 1.0' in await scrape()

    files, rows = listing(poisoned.folder), contents(poisoned.folder)
    asyncio.run(watch())
    assert (listing(poisoned.folder), contents(poisoned.folder)) == (files, rows)


def test_a_store_that_is_taken_away_from_a_watch_is_not_made_anew(poisoned: Project) -> None:
    async def watch() -> None:
        async with watching(poisoned) as scrape:
            await scrape()
            for file in poisoned.folder.glob("orders.db*"):
                file.unlink()
            away = 'posthouse_store_up{service="orders"} 0.0'
            await eventually(scrape, "the end of the store", right=lambda scraped: away in scraped, pause=0.1)

    asyncio.run(watch())
    assert not list(poisoned.folder.glob("orders.db*"))


def test_a_watch_of_nothing_ends_and_makes_nothing(project: Project) -> None:
    (project.folder / "order.db").touch()
    before = listing(project.folder)
    result = project.run("watch", "shop", "--http", "127.0.0.1:0")
    assert result.exit_code == 2, result.output
    assert f"{project.folder / 'orders.db'} is not there. Did you mean 'order.db'?" in " ".join(result.output.split())
    assert listing(project.folder) == before

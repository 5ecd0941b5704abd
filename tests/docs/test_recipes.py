"""The recipes: applications as their users have them, on two hosts and one PostgreSQL; and what adding Posthouse took."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, LiteralString, NamedTuple
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "examples" / "recipes"
PATIENCE = 120.0
MOST_LINES = 10
ORDERS = [f"o{number}" for number in range(40)]
HALF = len(ORDERS) // 2

POSTHOUSE = (sys.executable, "-m", "posthouse")
MANAGE = (sys.executable, "manage.py")
PORT = "{port}"


class Recipe(NamedTuple):
    """What a user types, in the folder of the application."""

    page: str
    makes_tables: Sequence[Sequence[str]]
    serves: Sequence[str]
    """Places an order for each POST /orders/ID; without a port, for each of its arguments."""
    posthouse: Sequence[str]
    target: str
    tests: Sequence[str]
    tables: tuple[str, str] = ("orders", "parcels")
    afterwards: Sequence[Sequence[str]] = ()
    """What must be fine when everything has run, on a database that has all our schemas."""


ALEMBIC = (sys.executable, "-m", "alembic")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
RECIPE = {
    "fastapi": Recipe(
        page="fastapi-sqlalchemy.md",
        makes_tables=[(*ALEMBIC, "upgrade", "head")],
        serves=(sys.executable, "-m", "uvicorn", "app:app", "--log-level", "warning", "--port", PORT),
        posthouse=POSTHOUSE,
        target="app",
        tests=PYTEST,
        afterwards=[(*ALEMBIC, "check")],
    ),
    "django": Recipe(
        page="django.md",
        makes_tables=[(*MANAGE, "migrate", "-v0")],
        serves=(*MANAGE, "runserver", "--noreload", PORT),
        posthouse=(*MANAGE, "posthouse"),
        target="shop.events",
        tests=(*MANAGE, "test"),
        tables=("shop_order", "shop_parcel"),
        afterwards=[(*MANAGE, "makemigrations", "--check")],
    ),
    "flask": Recipe(
        page="flask.md",
        makes_tables=[(sys.executable, "-m", "flask", "init-db"), (*POSTHOUSE, "db", "upgrade", "app")],
        serves=(sys.executable, "-m", "flask", "run", "--port", PORT),
        posthouse=POSTHOUSE,
        target="app",
        tests=PYTEST,
    ),
    "psycopg": Recipe(
        page="psycopg.md",
        makes_tables=[(sys.executable, "shop.py", "init-db"), (*POSTHOUSE, "db", "upgrade", "shop")],
        serves=(sys.executable, "shop.py", "place"),
        posthouse=POSTHOUSE,
        target="shop",
        tests=PYTEST,
    ),
}
NAMES = sorted(RECIPE)


class Host:
    """A folder with a copy of the application, and processes that run in it."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.recipe = RECIPE[name]
        self.folder = folder
        parts = urlsplit(url)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "DATABASE_URL": url,
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGUSER": parts.username or "",
            "PGDATABASE": parts.path.removeprefix("/"),
        }
        shutil.copytree(RECIPES / name, folder, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))

    def adds_up(self) -> bool:
        """Whether everything is applied, and no copy of it is left with the broker."""
        return self._run(*self.recipe.posthouse, "status", self.recipe.target).returncode == 0

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def call(self, *command: str) -> str:
        run = self._run(*command)
        assert run.returncode == 0, f"{command} in {self.folder}:\n{run.stdout}{run.stderr}"
        return run.stdout

    def posthouse(self, *arguments: str) -> str:
        return self.call(*self.recipe.posthouse, *arguments, self.recipe.target)

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process that is killed with -9 at the end, unless it has ended by then."""
        with (
            (self.folder / "output.log").open("ab") as output,
            subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=output, stderr=output) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def wait_for(self, process: subprocess.Popen[bytes], what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert process.poll() is None, f"it ended:\n{self.output()}"
            assert time.monotonic() < deadline, f"it did not come:\n{self.output()}"
            time.sleep(0.02)

    def output(self) -> str:
        return (self.folder / "output.log").read_text(encoding="utf-8")


class Found(NamedTuple):
    """What the database and both hosts say at the end."""

    orders: Sequence[str]
    parcels: Sequence[str]
    status: Sequence[Mapping[str, Any]]


class Shop:
    """What is in the database."""

    def __init__(self, connection: psycopg.Connection, orders: str, parcels: str) -> None:
        self._connection = connection
        self._orders, self._parcels = sql.Identifier(orders), sql.Identifier(parcels)

    def orders(self) -> list[str]:
        return self._ids("SELECT order_id FROM {}", self._orders)

    def parcels(self) -> list[str]:
        return self._ids("SELECT order_id FROM {}", self._parcels)

    @contextlib.contextmanager
    def nobody_can_pack(self) -> Iterator[Callable[[], bool]]:
        """Whoever wants to write a parcel waits; whether somebody does."""
        with self._connection.transaction():
            self._connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(self._parcels))
            yield lambda: bool(self._ids("SELECT pid::text FROM pg_locks WHERE NOT granted"))

    def _ids(self, statement: LiteralString, *names: sql.Identifier) -> list[str]:
        return sorted(row[0] for row in self._connection.execute(sql.SQL(statement).format(*names)).fetchall())


def two_hosts(name: str, server: PostgresServer, folder: Path) -> Found:
    """One host takes orders, the other one packs; both are killed while parcels are half written. Then one packs on."""
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        first, second = (Host(name, url, folder / host) for host in ("first", "second"))
        shop = Shop(connection, *first.recipe.tables)
        for command in first.recipe.makes_tables:
            first.call(*command)
        consume = (*second.recipe.posthouse, "run", second.recipe.target)
        with taking_orders(first) as place, second.running(*consume) as worker:
            place(ORDERS[:HALF])
            second.wait_for(worker, lambda: len(shop.parcels()) == HALF)
            with shop.nobody_can_pack() as somebody_waits:
                place(ORDERS[HALF:])
                second.wait_for(worker, somebody_waits)
                worker.kill()
                worker.wait()
        assert len(shop.parcels()) == HALF
        with second.running(*consume) as worker:
            second.wait_for(worker, lambda: len(shop.parcels()) >= len(ORDERS) and second.adds_up())
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        status = [json.loads(host.posthouse("status", "--json")) for host in (first, second)]
        for command in first.recipe.afterwards:
            first.call(*command)
        return Found(shop.orders(), shop.parcels(), status)


@contextlib.contextmanager
def taking_orders(host: Host) -> Iterator[Callable[[Sequence[str]], None]]:
    """What places orders, by a process that is killed in the end: a web server, or a script."""
    if PORT not in host.recipe.serves:
        yield partial(place_by_script, host)
        return
    port = str(free_port())
    with (
        host.running(*(port if part == PORT else part for part in host.recipe.serves)) as web,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
    ):

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/").status_code == 404
            return False

        def place(orders: Sequence[str]) -> None:
            for order in orders:
                assert client.post(f"/orders/{order}").json() == {"placed": order}

        host.wait_for(web, answers)
        yield place


def place_by_script(host: Host, orders: Sequence[str]) -> None:
    with host.running(*host.recipe.serves, *orders) as script:
        host.wait_for(script, lambda: f"placed {orders[-1]}\n" in host.output())


@pytest.fixture(scope="module")
def stories(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Found]]]:
    """All recipes at once: most of the time they wait for the lease of somebody who was killed."""
    with ThreadPoolExecutor(len(NAMES)) as at_once:
        yield {name: at_once.submit(two_hosts, name, postgres_server, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.mark.timeout(400)  # the first one waits for all of them
@pytest.mark.parametrize("name", NAMES)
def test_on_two_hosts_everything_is_applied_once_whoever_is_killed(
    name: str, stories: Mapping[str, Future[Found]]
) -> None:
    found = stories[name].result()
    assert found.orders == sorted(ORDERS)
    assert found.parcels == found.orders
    for status in found.status:
        assert status["verdict"] == "adds up"
        assert [(line["committed"], line["applied"]) for line in status["lines"]] == [(len(ORDERS), len(ORDERS))]


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_a_recipe_pass_as_its_user_runs_them(
    name: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with postgres_server.database() as url:
        host = Host(name, url, tmp_path / name)
        host.environment["POSTHOUSE_TEST_SERVER"] = postgres_server.url
        if host.recipe.tests == PYTEST:
            del host.environment["DATABASE_URL"]  # the session makes a database of its own
        host.call(*host.recipe.tests)
        if name == "django":  # whatever ran before, on a connection that is kept
            host.call(*host.recipe.tests, "--reverse")


# What it took.

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CHANGE = re.compile(r"<!-- (?P<why>publish|correlate|consume) (?P<file>\S+) -->\n```diff\n(?P<text>.*?)```", re.DOTALL)


class Change(NamedTuple):
    """One of the changes on a page."""

    why: str
    file: str
    lines: Sequence[str]

    def side(self, *signs: str) -> str:
        return "".join(f"{line[1:]}\n" for line in self.lines if line[:1] in signs)

    @property
    def added(self) -> int:
        """Lines that somebody has to write; blank ones cost nothing."""
        return sum(1 for line in self.lines if line[:1] == "+" and line[1:].strip())


def changes_on(page: str) -> list[Change]:
    text = (ROOT / "docs" / "recipes" / page).read_text(encoding="utf-8")
    return [Change(match["why"], match["file"], match["text"].splitlines()) for match in CHANGE.finditer(text)]


@pytest.mark.parametrize("name", NAMES)
def test_ten_lines_are_enough_to_publish_and_ten_more_to_consume(name: str) -> None:
    page = RECIPE[name].page
    added = Counter[str]()
    for change in changes_on(page):
        added[change.why] += change.added
    assert all(0 < added[why] <= MOST_LINES for why in ("publish", "consume")), added
    said = f"{WORDS[added['publish']].capitalize()} lines to publish, {WORDS[added['consume']]} more to consume"
    assert said in (ROOT / "docs" / "recipes" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_without_the_lines_of_its_page_an_application_knows_nothing_of_posthouse(name: str, tmp_path: Path) -> None:
    """So these are all the lines, and the application was whole before."""
    before = tmp_path / name
    shutil.copytree(RECIPES / name, before, ignore=shutil.ignore_patterns("test*.py", "conftest.py", "__pycache__"))
    changes = changes_on(RECIPE[name].page)
    for change in sorted(changes, key=lambda change: change.why):  # consuming was added last, and goes first
        file = before / Path(change.file).relative_to(f"docs/examples/recipes/{name}")
        text = file.read_text(encoding="utf-8")
        assert text.count(change.side(" ", "+")) == 1, f"{change.file} does not have, once:\n{change.side(' ', '+')}"
        file.write_text(text.replace(change.side(" ", "+"), change.side(" ", "-")), encoding="utf-8")
    for file in before.rglob("*.py"):
        code = re.sub(r'^""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"posthouse|OrderPlaced", code, re.IGNORECASE), f"{file.name} still has it:\n{code}"
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", str(before)]
    run = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout

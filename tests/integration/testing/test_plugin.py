"""The plugin in a project of a user's: a session makes its database and drops it, whatever happens, and touches no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from posthouse import Service
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness
from posthouse.testing.scratch import MARK, ScratchDatabase
from tests.kit.servers.postgres import PostgresServer

CONFTEST = """
    pytest_plugins = ["posthouse.testing.plugin"]
"""

SHOP = """
    import asyncio, os, sys
    import pytest
    from posthouse import Event, Payload, Service, Tx
    from posthouse.testing import Harness

    shop = Service("shop")

    @shop.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @shop.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS parcel (id serial, order_id text)")

    @shop.on(OrderPlaced)
    async def pack(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute("INSERT INTO parcel (order_id) VALUES ($1)", (event.data.order_id,))

    @pytest.mark.parametrize("time", range(3))
    def test_a_parcel_is_packed(posthouse_store: str, time: int) -> None:
        async def story() -> None:
            async with Harness(shop, store=posthouse_store) as harness:
                await harness.publish(OrderPlaced(order_id="o1"))
                await harness.settled()
                assert [event.sequence for event in await harness.published(OrderPlaced)] == [1]
                async with shop.transaction() as tx:
                    assert await tx.execute("SELECT * FROM parcel") == [(1, "o1")]
        asyncio.run(story())
        if "WAIT" in os.environ:
            print("waiting", file=sys.stderr, flush=True)
            sys.stdin.read()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (("conftest.py", CONFTEST), ("test_shop.py", SHOP), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


@pytest.fixture
def ground(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database that belongs to somebody, with rows that count."""
    with postgres_server.database() as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE parcel (id serial, order_id text)")
            connection.execute("INSERT INTO parcel (order_id) VALUES ('of a customer')")
        yield url
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT order_id FROM parcel").fetchall() == [("of a customer",)]
            assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname ~ 'posthouse'").fetchone() == (
                0,
            )


def started(project: Path, server: str | None, **more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTHOUSE")} | more
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of this repository, which take seconds to import
    if server is not None:
        environment["POSTHOUSE_TEST_SERVER"] = server
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=project, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ended(session: subprocess.Popen[str]) -> str:
    said, errors = session.communicate(timeout=60)
    return f"{said}{errors}"


def scratches(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'posthouse_test_%'").fetchall()
    return {name for (name,) in found}


def test_sessions_side_by_side_do_not_meet_and_leave_nothing_behind(project: Path, ground: str) -> None:
    before = scratches(ground)
    (project / "pytest.ini").write_text(f"[pytest]\nposthouse_test_server = {ground}\n")
    sessions = [started(project, server) for server in (ground, None)]
    for session in sessions:
        assert "3 passed" in ended(session)
    assert scratches(ground) == before


def test_what_a_killed_session_left_goes_with_the_next_one(project: Path, ground: str) -> None:
    before = scratches(ground)
    session = started(project, ground, WAIT="1")
    assert session.stderr is not None
    while "waiting" not in session.stderr.readline():
        assert session.poll() is None
    (left,) = scratches(ground) - before
    session.send_signal(signal.SIGKILL)
    ended(session)
    assert left in scratches(ground)
    assert "3 passed" in ended(started(project, ground))
    assert scratches(ground) == before


def test_a_session_that_is_at_work_is_left_alone(ground: str) -> None:
    first, second = ScratchDatabase(ground), ScratchDatabase(ground)
    try:
        first.make()
        second.make()
        assert {first.name, second.name} <= scratches(ground)
    finally:
        first.drop()
        second.drop()


@pytest.mark.parametrize("mark", ["", MARK], ids=["bare", "kept by Django"])
def test_a_database_that_only_has_such_a_name_is_never_dropped(
    postgres_server: PostgresServer, ground: str, mark: str
) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE posthouse_test_accounts")
        connection.execute(f"COMMENT ON DATABASE posthouse_test_accounts IS '{mark}'".encode())
        try:
            scratch = ScratchDatabase(ground)
            scratch.make()
            scratch.drop()
            assert "posthouse_test_accounts" in scratches(ground)
        finally:
            connection.execute("DROP DATABASE posthouse_test_accounts")


def test_without_a_server_the_test_fails_and_says_what_to_set(project: Path) -> None:
    said = ended(started(project, None))
    assert "no PostgreSQL server is named for tests: set POSTHOUSE_TEST_SERVER, or posthouse_test_server" in said
    assert "3 errors" in said


async def test_a_harness_refuses_a_database_that_was_not_made_for_tests(ground: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"was not made by a test session: .* Use the fixture `posthouse_store`"
    ):
        async with Harness(Service("shop"), store=ground):
            pass


async def test_a_harness_refuses_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a harness runs in memory or on PostgreSQL"):
        async with Harness(Service("shop"), store=f"sqlite:///{tmp_path}/shop.db"):
            pass
    assert os.listdir(tmp_path) == []


def test_a_role_that_may_not_make_databases_is_told_what_to_do(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE modest LOGIN")
        try:
            scratch = ScratchDatabase(postgres_server.url.replace("postgres@", "modest@"))
            with pytest.raises(ConfigurationError, match="ALTER ROLE … CREATEDB"):
                scratch.make()
            scratch.drop()
        finally:
            connection.execute("DROP ROLE modest")


def test_another_role_than_a_superuser_can_test_too(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE tester LOGIN CREATEDB")
        scratch = ScratchDatabase(postgres_server.url.replace("postgres@", "tester@"))
        try:
            scratch.make()
            scratch.upgrade()
            with psycopg.connect(scratch.url, autocommit=True) as own:
                own.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a)")
                own.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
                scratch.keep()
                own.execute("UPDATE a SET id = 1; INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)")
                own.execute("INSERT INTO posthouse.key VALUES ('t', 't', 'k', 1)")
                assert {"public.a", "public.b", "posthouse.key"} <= set(scratch.reset())
                assert own.execute("SELECT * FROM b").fetchall() == [(1,)]
        finally:
            scratch.drop()
            connection.execute("DROP ROLE tester")

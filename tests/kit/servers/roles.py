"""Roles for tests of isolation: an owner of the tables, an application that works for one tenant, and a runtime."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.kit.servers.postgres import PostgresServer

PASSWORD = "only-for-tests"


class Ground:
    """A database of its own, and three plain roles that may log in. `url` is that of a superuser."""

    def __init__(self, url: str, suffix: str) -> None:
        self.url = url
        self.owner, self.application, self.runtime = (
            f"{name}_{suffix}" for name in ("owner", "application", "runtime")
        )

    @property
    def owner_url(self) -> str:
        return self.url_for(self.owner)

    @property
    def application_url(self) -> str:
        return self.url_for(self.application)

    @property
    def runtime_url(self) -> str:
        return self.url_for(self.runtime)

    def url_for(self, role: str) -> str:
        """The database, as another role."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{role}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}").geturl()

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """As the superuser, one transaction; what the last one returned."""
        with psycopg.connect(self.url, connect_timeout=10) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def new_ground(server: PostgresServer) -> Iterator[Ground]:
    """A database that belongs to a plain owner. Roles belong to the whole server: they go when the database has gone."""
    suffix = uuid.uuid4().hex[:12]
    roles = [f"{name}_{suffix}" for name in ("owner", "application", "runtime")]
    with psycopg.connect(server.url, autocommit=True, connect_timeout=10) as connection:
        if connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() != (True,):
            pytest.skip("POSTHOUSE_TEST_POSTGRES is not the URL of a superuser, who alone can make every kind of role")
        for role in roles:
            made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(PASSWORD))
            connection.execute(made)
        with server.database() as url:
            name = sql.Identifier(urlsplit(url).path.removeprefix("/"))
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(name, sql.Identifier(roles[0])))
            yield Ground(url, suffix)
        for role in roles:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


@pytest.fixture
def ground(postgres_server: PostgresServer) -> Iterator[Ground]:
    """A database and roles that this test has to itself."""
    with new_ground(postgres_server) as ground:
        yield ground

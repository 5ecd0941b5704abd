"""Ground: where the stores of a world are. On files there is nothing to do; on a server each world has a database."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

import psycopg
from psycopg import sql

from posthouse.clock import new_id
from tests.kit.servers.postgres import PATIENCE, PostgresServer, settle

# A copy is another database than the one that its cursors were written in, and no restored dump all the same.


class Ground(Protocol):
    """Gives databases to worlds: URLs, or empty for files."""

    def new(self) -> str:
        """An empty database."""
        ...

    def copied(self, url: str) -> str:
        """Another one in the same state; nobody may be connected to the first."""
        ...

    def clear(self, url: str) -> None:
        """It is not needed any more."""
        ...


class Files:
    """SQLite: a copy of the folder is all."""

    def new(self) -> str:
        return ""

    def copied(self, url: str) -> str:
        return ""

    def clear(self, url: str) -> None:
        pass


class Databases:
    """PostgreSQL. Use it as a context: at its end every database that it gave is dropped."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._names: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in tuple(self._names):
            self._drop(name)

    def new(self) -> str:
        return self._made(sql.SQL(""))

    def copied(self, url: str) -> str:
        copy = self._made(sql.SQL("TEMPLATE {}").format(sql.Identifier(name_of(url))))
        settle(copy, ("orders", "billing"))
        return copy

    def clear(self, url: str) -> None:
        self._drop(name_of(url))

    def _made(self, how: sql.Composable) -> str:
        name = f"world_{new_id().replace('-', '')}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._server.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), how))
                break
            except psycopg.errors.ObjectInUse:  # the last session on it is still ending
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._names.add(name)
        return self._server.url_of(name)

    def _drop(self, name: str) -> None:
        self._server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        self._names.discard(name)


def name_of(url: str) -> str:
    """The database that a URL names."""
    return url.rpartition("/")[2]

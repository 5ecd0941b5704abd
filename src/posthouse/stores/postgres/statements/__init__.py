"""Statements: how each library runs one on a connection or session of its own. Nothing here begins or commits."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows
from posthouse.store.savepoints import Detach, Savepoints

PARAMETER = re.compile(r"\$(\d+)")


class Statements(Protocol):
    """A synchronous connection or session. The library's own errors come out as they are."""

    theirs: object

    def attend(self, savepoints: Savepoints) -> Detach:
        """Tell of every savepoint that the user sets, releases and rolls back; what ends that."""
        ...

    def refuse_autocommit(self) -> None:
        """ConfigurationError when each statement would be a transaction of its own, or the database is not PostgreSQL."""
        ...

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Run one of our statements, whose parameters are `$1`, `$2` …"""
        ...

    def run(self, sql: str, parameters: Parameters) -> Rows:
        """Run one of the user's statements, in the driver's own style."""
        ...


class AsyncStatements(Protocol):
    """The same for an asynchronous one."""

    theirs: object

    async def attend(self, savepoints: Savepoints) -> Detach:
        """As in Statements."""
        ...

    async def refuse_autocommit(self) -> None:
        """As in Statements."""
        ...

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        """As in Statements."""
        ...

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        """As in Statements."""
        ...


@functools.lru_cache(maxsize=256)
def by_name(sql: str) -> str:
    """A statement of ours in the style of psycopg; a parameter that stands twice is still one."""
    return PARAMETER.sub(r"%(p\1)s", sql.replace("%", "%%"))


def named(parameters: Sequence[object]) -> Mapping[str, object]:
    """Its parameters. A tuple is an array for asyncpg and a row for psycopg: a list is an array for both."""
    return {
        f"p{number}": list(value) if isinstance(value, tuple) else value for number, value in enumerate(parameters, 1)
    }


def autocommit(remedy: str) -> ConfigurationError:
    """The refusal of a connection that commits by itself."""
    return ConfigurationError(
        "no transaction is open and the connection commits every statement by itself, so the event would not commit together "
        f"with your rows: {remedy}"
    )

"""Statements on Django's connection, on psycopg 3 or psycopg2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import PYFORMAT, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.statements import autocommit, by_name, named


class DjangoStatements:
    """`django.db.connection`, or one of `django.db.connections`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    def attend(self, savepoints: Savepoints) -> Detach:
        def listening(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
            try:
                found = execute(sql, parameters, many, context)
            except BaseException:
                savepoints.hear_failed(sql)
                raise
            savepoints.hear(sql)
            return found

        wrappers = self.theirs.execute_wrappers
        wrappers.append(listening)
        return lambda: wrappers.remove(listening)

    def refuse_autocommit(self) -> None:
        """Django commits each statement outside of an atomic block."""
        if self.theirs.vendor != "postgresql":
            raise ConfigurationError(
                f"Django's connection {self.theirs.alias!r} talks to {self.theirs.vendor}, the store is PostgreSQL: events "
                "and rows must share a database"
            )
        if not self.theirs.in_atomic_block and self.theirs.get_autocommit():
            raise autocommit("open `with transaction.atomic():` first, for the same connection")

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return self.run(by_name(sql), named(parameters))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        sql, parameters = bound(sql, parameters, PYFORMAT)
        with self.theirs.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            rows = Rows(tuple(map(_plain, row)) for row in (cursor.fetchall() if cursor.description else ()))
            rows.rowcount = cursor.rowcount
            return rows


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview) else value  # what psycopg2 makes of bytea

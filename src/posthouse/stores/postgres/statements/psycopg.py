"""Statements on the connections of psycopg 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.store import Parameters, Rows
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.statements import autocommit, by_name, named
from posthouse.stores.postgres.steps import rows_of


class PsycopgStatements:
    """A `psycopg.Connection`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    def attend(self, savepoints: Savepoints) -> Detach:
        return _attend(self.theirs, savepoints)

    def refuse_autocommit(self) -> None:
        _refuse_autocommit(self.theirs)

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return self.run(by_name(sql), named(parameters))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        with self.theirs.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(sql, parameters or None)
            return rows_of(cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


class AsyncPsycopgStatements:
    """A `psycopg.AsyncConnection`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def attend(self, savepoints: Savepoints) -> Detach:
        return _attend(self.theirs, savepoints)

    async def refuse_autocommit(self) -> None:
        _refuse_autocommit(self.theirs)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self.run(by_name(sql), named(parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        async with self.theirs.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters or None)
            return rows_of(await cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


def _refuse_autocommit(connection: Any) -> None:
    """Psycopg begins by itself unless it is told to commit by itself."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise autocommit("open `with connection.transaction():` first")


def _attend(connection: Any, savepoints: Savepoints) -> Detach:
    """Its nested transactions send commands of their own; everything else goes through cursors."""
    send, factory = connection._exec_command, connection.cursor_factory

    def listening(command: Any, *arguments: Any, **options: Any) -> Any:
        try:
            found = yield from send(command, *arguments, **options)
        except BaseException:
            savepoints.hear_failed(_text(command, connection))
            raise
        savepoints.hear(_text(command, connection))
        return found

    connection._exec_command = listening
    connection.cursor_factory = _listening_cursor(factory, savepoints)

    def end() -> None:
        del connection._exec_command
        connection.cursor_factory = factory

    return end


def _listening_cursor(factory: Any, savepoints: Savepoints) -> Any:
    class Listening(factory):  # type: ignore[misc]
        def _execute_gen(self, query: Any, *arguments: Any, **options: Any) -> Any:
            try:
                yield from super()._execute_gen(query, *arguments, **options)
            except BaseException:
                savepoints.hear_failed(_text(query, self.connection))
                raise
            savepoints.hear(_text(query, self.connection))

    return Listening


def _text(query: Any, connection: Any) -> Any:
    return query.as_string(connection) if hasattr(query, "as_string") else query

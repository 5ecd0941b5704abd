"""Statements on the connections of psycopg 3."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from posthouse.local.postgres.connection import rows_of
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import PYFORMAT, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.statements import autocommit, by_name, named


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
        sql, parameters = bound(sql, parameters, PYFORMAT)
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
        sql, parameters = bound(sql, parameters, PYFORMAT)
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
    """Its nested transactions send commands of their own; what goes through cursors, also those that were opened before,
    is waited for on the connection."""
    send, wait = connection._exec_command, connection.wait

    def sending(command: Any, *arguments: Any, **options: Any) -> Any:
        with _hearing(savepoints, _text(command, connection)):
            return (yield from send(command, *arguments, **options))

    def waiting(work: Any, *arguments: Any, **options: Any) -> Any:
        with _hearing(savepoints, _asked(work, connection)):
            return wait(work, *arguments, **options)

    async def waiting_async(work: Any, *arguments: Any, **options: Any) -> Any:
        with _hearing(savepoints, _asked(work, connection)):
            return await wait(work, *arguments, **options)

    connection._exec_command = sending
    connection.wait = waiting_async if inspect.iscoroutinefunction(wait) else waiting

    def end() -> None:
        del connection._exec_command, connection.wait

    return end


@contextlib.contextmanager
def _hearing(savepoints: Savepoints, sql: object) -> Iterator[None]:
    try:
        yield
    except BaseException:
        savepoints.hear_failed(sql)
        raise
    savepoints.hear(sql)


def _asked(work: Any, connection: Any) -> object:
    """The statement of a cursor's work that has not begun: what it was called with."""
    frame = getattr(work, "gi_frame", None)
    given = {} if frame is None else frame.f_locals
    return _text(given.get("query", given.get("statement", "")), connection)


def _text(query: Any, connection: Any) -> Any:
    return query.as_string(connection) if hasattr(query, "as_string") else query

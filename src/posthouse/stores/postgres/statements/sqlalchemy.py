"""Statements on the sessions and connections of SQLAlchemy, on any driver for PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import STYLES, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.attending import attend_sqlalchemy
from posthouse.stores.postgres.statements import PARAMETER, autocommit, named


class SqlalchemyStatements:
    """A `Session` or `Connection`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    def attend(self, savepoints: Savepoints) -> Detach:
        return attend_sqlalchemy(self.theirs, savepoints)

    def refuse_autocommit(self) -> None:
        """SQLAlchemy begins by itself unless its isolation level is AUTOCOMMIT."""
        connection = self._connection()
        if connection.dialect.name != "postgresql":
            raise ConfigurationError(
                f"the session talks to {connection.dialect.name}, the store is PostgreSQL: events and rows must share a "
                "database"
            )
        if getattr(connection.connection.dbapi_connection, "autocommit", False):
            raise autocommit("use an engine or a connection whose isolation level is not AUTOCOMMIT")

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        from sqlalchemy import text

        return _fetched(self._connection().execute(text(PARAMETER.sub(r":p\1", sql)), named(parameters)))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        connection = self._connection()
        sql, parameters = bound(sql, parameters, STYLES[connection.dialect.paramstyle])
        given: Any = dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)
        return _fetched(connection.exec_driver_sql(sql, given))

    def _connection(self) -> Any:
        """A session lends its connection; a connection is one. Both begin as SQLAlchemy does."""
        return self.theirs.connection() if hasattr(self.theirs, "get_bind") else self.theirs


class AsyncSqlalchemyStatements:
    """An `AsyncSession` or `AsyncConnection`: a synchronous one inside, which runs where it may wait."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def attend(self, savepoints: Savepoints) -> Detach:
        end: Detach = await self.theirs.run_sync(lambda sync: attend_sqlalchemy(sync, savepoints))
        return end

    async def refuse_autocommit(self) -> None:
        await self.theirs.run_sync(lambda sync: SqlalchemyStatements(sync).refuse_autocommit())

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        rows: Rows = await self.theirs.run_sync(lambda sync: SqlalchemyStatements(sync).ours(sql, parameters))
        return rows

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        rows: Rows = await self.theirs.run_sync(lambda sync: SqlalchemyStatements(sync).run(sql, parameters))
        return rows


def _fetched(result: Any) -> Rows:
    rows = Rows(tuple(row) for row in result.fetchall()) if result.returns_rows else Rows()
    rows.rowcount = result.rowcount
    return rows

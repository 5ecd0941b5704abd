"""aiosqlite: every statement is a trip to its thread."""

from __future__ import annotations

import contextlib
import sqlite3
import weakref
from collections.abc import MutableMapping
from typing import Any

from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import QUESTION, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Kind, Session, put_before
from posthouse.stores.sessions.sqlite3 import refuse_autocommit

_memories: weakref.WeakKeyDictionary[object, MutableMapping[str, object]] = weakref.WeakKeyDictionary()


def join(theirs: Any) -> Session | None:
    """An `aiosqlite.Connection`."""
    return AiosqliteSession(theirs) if hasattr(theirs, "in_transaction") else None


class AiosqliteSession(Session):
    """Whatever it does goes through one method."""

    needs_loop = True

    async def attend(self, savepoints: Savepoints) -> Detach:
        theirs, execute = self.theirs, self.theirs._execute

        async def listening(function: Any, *arguments: Any, **options: Any) -> Any:
            sql = arguments[0] if arguments and isinstance(arguments[0], str) else getattr(function, "__name__", "")
            try:
                found = await execute(function, *arguments, **options)
                savepoints.hear(sql)
            except BaseException:
                savepoints.hear_failed(sql)
                raise
            finally:
                with contextlib.suppress(sqlite3.ProgrammingError, ValueError):  # it was just closed
                    savepoints.see(theirs.in_transaction)
            return found

        savepoints.see(theirs.in_transaction)
        return put_before(theirs, _execute=listening)

    async def refuse_autocommit(self, kind: Kind) -> None:
        refuse_autocommit(self.theirs)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        async with self.theirs.execute(*bound(sql, parameters, QUESTION)) as cursor:
            rows = Rows(tuple(row) for row in await cursor.fetchall())
            rows.rowcount = cursor.rowcount
            return rows

    async def memory(self) -> MutableMapping[str, object]:
        return _memories.setdefault(self.theirs, {})

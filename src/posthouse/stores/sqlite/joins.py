"""Joins: the user's own open transaction, of any library that SQLite users have. Nothing here begins or commits."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import cast

from posthouse.errors import PosthouseError, StoreUnavailable
from posthouse.local.sqlite import translated
from posthouse.store import Parameters, Rows
from posthouse.store.savepoints import steps_in
from posthouse.stores.sessions import original_of, session_of
from posthouse.stores.sessions.joined import Joined
from posthouse.stores.sessions.sqlite3 import BorrowedConnection
from posthouse.stores.sqlite.database import Database, SqliteTransaction
from posthouse.stores.sqlite.schema import checking

# Drivers begin a transaction with the first change only. A savepoint that comes before would be one, and its release a commit.
TOUCH = "DELETE FROM posthouse_timer WHERE 0"

SHARDS = "posthouse_shards"


class SqliteJoined(Joined):
    """A transaction that the user began."""

    def __init__(self, database: Database, theirs: object) -> None:
        super().__init__(session_of(theirs, "SQLite"))
        self.database = database

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        if any(step.verb == "set" for step in steps_in(sql)):
            await self.checked()
            with self.translating():
                await self.session.ours(TOUCH, ())
        return await super().execute(sql, parameters)

    async def checked(self) -> int:
        """The number of shards. The tables are looked at once per connection, where it can be remembered; whether it is in a
        transaction, each time."""
        with self.translating():
            await self.session.refuse_autocommit("SQLite")
            memory = await self.session.memory()
        if SHARDS not in memory:
            shards = await self.carry_out(checking(self.database.wanted_shards, self.database.file))
            memory[SHARDS] = shards
            self.database.checked(shards)
        return cast("int", memory[SHARDS])

    @contextlib.contextmanager
    def translating(self, *, ours: bool = True) -> Iterator[None]:
        try:
            yield
        except PosthouseError:
            raise
        except Exception as error:
            original = original_of(error)
            if isinstance(original, sqlite3.Error):
                raise _ours(original) from (original if ours else error)
            raise


def owner_of(theirs: object) -> SqliteTransaction | None:
    """The store's own transaction, when that is what theirs turns out to be."""
    if isinstance(theirs, SqliteTransaction):
        return theirs
    if isinstance(theirs, BorrowedConnection):
        return theirs.transaction if isinstance(theirs.transaction, SqliteTransaction) else None
    return None


def _ours(error: sqlite3.Error) -> PosthouseError:
    ours = translated(error, "adding to the joined transaction")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"{ours}: somebody committed after this transaction first read; begin it with BEGIN IMMEDIATE, or run it again"
        )
    return ours

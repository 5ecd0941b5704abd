"""Joins: the user's own open transaction, of any library that PostgreSQL users have. Nothing here begins or commits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from posthouse.errors import PosthouseError
from posthouse.store import Transaction
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import cause_of, is_foreign, outdated, translated
from posthouse.stores.postgres.schema import Place
from posthouse.stores.postgres.transaction import BEGUN, Begun
from posthouse.stores.sessions import original_of, session_of
from posthouse.stores.sessions.joined import Joined

DOING = "in the joined transaction"


class PostgresJoined(Joined):
    """A transaction that the user began."""

    def __init__(self, database: Database, theirs: object) -> None:
        super().__init__(session_of(theirs, "PostgreSQL"))
        self.database = database

    async def checked(self) -> Place:
        """The store's place, after making sure that theirs is in a transaction. The append makes sure of the rest."""
        with self.translating():
            await self.session.refuse_autocommit("PostgreSQL")
        if self.database.joined is None:
            self.database.joined = await self.carry_out(self.database.joining())
        return self.database.joined

    @contextlib.contextmanager
    def translating(self, *, ours: bool = True) -> Iterator[None]:
        """A statement of `ours` can only lack our own tables."""
        try:
            yield
        except PosthouseError:
            raise
        except Exception as error:
            original = original_of(error)
            if is_foreign(original):
                raise (outdated if ours else translated)(original, DOING) from (cause_of(error) if ours else error)
            raise

    def text(self, sql: str) -> str:
        return self.database.text(sql)


async def ours(database: Database, tx: Transaction) -> Begun | PostgresJoined:
    """Where statements of the store are carried out: in a transaction that the store began, or in theirs, after making sure
    that it is one."""
    if isinstance(tx, BEGUN):
        return tx
    theirs = theirs_of(database, tx)
    await theirs.checked()
    return theirs


def theirs_of(database: Database, tx: Transaction) -> PostgresJoined:
    """The join of a transaction that the store did not begin; it may be the join itself, or hold what can be joined."""
    return tx if isinstance(tx, PostgresJoined) else PostgresJoined(database, tx.connection)

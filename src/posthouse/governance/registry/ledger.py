"""PORT  The database that keeps a registry's schemas."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

Value = int | str | bytes | None
Row = tuple[Value, ...]


class Session(Protocol):
    """One transaction."""

    async def fetch(self, sql: str, *values: Value) -> list[Row]:
        """Run one statement and return its rows. Parameters are `$1`, `$2`, …; tables are `posthouse_registry.name`.

        The statement is one that SQLite and PostgreSQL both understand. Truth values are the integers 0 and 1.
        """
        ...


class Ledger(Protocol):
    """A registry's tables. Several processes may use one ledger at a time.

    Nothing else is promised about the database, so decisions stay in one place, `Books`, and are the same everywhere.
    Raises StoreUnavailable when it is away, and other StoreErrors when it refuses.
    """

    async def open(self) -> None:
        """Connect, and make the tables where they are missing. Called once, before anything else."""
        ...

    def reading(self) -> AbstractAsyncContextManager[Session]:
        """A transaction that sees one state of the tables and waits for no writer."""
        ...

    def writing(self) -> AbstractAsyncContextManager[Session]:
        """A transaction that no other `writing` runs beside, in any process: what it reads is still true when it ends.

        It commits when the block is left, and rolls back when an exception leaves it.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the connections. The ledger cannot be opened again."""
        ...

"""Transaction: one open transaction on a connection of the pool, also its own block."""

from __future__ import annotations

import asyncio
import logging
from math import ceil
from types import TracebackType
from typing import Protocol, TypeVar

import asyncpg

from posthouse.errors import CommitUnknown, DeadlineExceeded, StoreError, TransactionClosed
from posthouse.local.postgres.connection import ServerConnection
from posthouse.store import Parameters, Rows, Transaction
from posthouse.store.patience import patience
from posthouse.store.placeholders import DOLLAR, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.database import LASTING, Database, carried_out
from posthouse.stores.postgres.errors import FOREIGN, database_trouble, is_lost, translated
from posthouse.stores.postgres.handler_transaction import HandlerTransaction
from posthouse.stores.postgres.harmless import leaves_nothing
from posthouse.stores.postgres.steps import Steps, literal
from posthouse.stores.sessions.refusing import PASSED_OVER, refuse_ending

log = logging.getLogger("posthouse.store")

T = TypeVar("T")


class UserStatements:
    """What is done about statements of the user's on the connection that is lent to him."""

    def __init__(self, savepoints: Savepoints) -> None:
        self.after = savepoints.hear
        self.failed = savepoints.hear_failed

    def before(self, sql: object) -> None:
        """Whoever began the transaction ends it."""
        refuse_ending(sql)


class PostgresTransaction:
    """READ COMMITTED; committed when the block ends, rolled back when it raises. After a deadline or a cancellation its
    connection is cut, so that nobody who still holds it can write."""

    submit = None
    needs_loop = True
    __slots__ = (
        "_begun",
        "_check",
        "_commit_sql",
        "_connection",
        "_lazily",
        "appended",
        "database",
        "open",
        "savepoints",
        "task",
        "tenant",
    )

    def __init__(
        self, database: Database, *, check: bool = True, tenant: str | None = None, lazily: bool = False
    ) -> None:
        self.database = database
        self.tenant = tenant
        """Whose rows it sees, where the store is isolated."""
        self.open = False
        self.appended = False
        """Whether the outbox got something, so that a relay should look."""
        self.savepoints = Savepoints()
        self.task: asyncio.Task[object] | None = None
        self._check = check
        self._lazily = lazily
        self._commit_sql = ""
        """A statement that goes to the server together with the COMMIT."""
        self._connection: ServerConnection | None = None
        self._begun = False

    @property
    def connection(self) -> asyncpg.Connection:
        """An `asyncpg.Connection` that is good until the transaction ends."""
        connection = self.ready()
        connection.mark_unclean()
        connection.watcher = UserStatements(self.savepoints)
        return connection.lent

    async def attend(self) -> Detach:
        return _nothing  # it hears of everything that comes this way

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        sql, parameters = bound(sql, parameters, DOLLAR)
        if leaves_nothing(sql) and self.tenant is None:  # among tenants, what a trigger may leave behind counts as well
            return await self._run(sql, *parameters)
        self._ready().mark_unclean()
        try:
            found = await self._run(sql, *parameters)
        except BaseException:
            self.savepoints.hear_failed(sql)
            raise
        self.savepoints.hear(sql)
        return found

    async def run(self, sql: str, *parameters: object) -> Rows:
        """A statement of ours."""
        return await self._run(self.database.text(sql), *parameters)

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps to their end."""
        return await carried_out(steps, lambda sql, parameters: self.run(sql, *parameters))

    async def run_script(self, sql: str) -> None:
        """Several statements of ours, without parameters."""
        try:
            await self.ready().execute(self.database.text(sql))
        except FOREIGN as error:
            raise translated(error, "running a script") from error

    def ready(self) -> ServerConnection:
        """The connection, as long as it is in this transaction."""
        connection = self._ready()
        if not self._begun:
            raise StoreError("the transaction was begun lazily and has run no statement yet")
        return connection

    def _ready(self) -> ServerConnection:
        if not self.open or self._connection is None:
            raise TransactionClosed("the transaction has ended: its deadline passed or its block was left")
        return self._connection

    @property
    def unbegun(self) -> bool:
        """Whether its BEGIN is still to be sent."""
        return not self._begun

    @property
    def may_spell_out(self) -> bool:
        """Whether values may stand in the text of a statement, which saves a round trip. Whoever shares the role reads that
        text in `pg_stat_activity`: where tenants are kept apart, values travel as parameters."""
        return self.tenant is None

    async def run_with_commit(self, sql: str) -> None:
        """Run a statement without parameters, as it is, in the round trip of the commit, or before whatever still comes."""
        if self._commit_sql or not self._begun:
            await self._run(sql)
        else:
            self._ready()
            self._commit_sql = sql

    async def begin_with(self, sql: str) -> str:
        """Begin, and run a statement without parameters, as it is, in the same round trip; the server's word on it."""
        try:
            return await self._begin(self._ready(), sql)
        except FOREIGN as error:
            raise translated(error, "beginning a transaction") from error

    async def begin_executing(self, name: str, preparing: str, parameters: str) -> str:
        """The same for a statement that is prepared under its name when the session has it for the first time."""
        connection = self._ready()
        execute = f"EXECUTE {name} ({parameters})"
        if name in connection.prepared:
            return await self.begin_with(execute)
        connection.prepared = connection.prepared | {name}  # one that fails to begin is not used again
        return await self.begin_with(f"{self.database.text(preparing)}; {execute}")

    async def _run(self, sql: str, *parameters: object) -> Rows:
        connection = self._ready()
        try:
            if not self._begun:
                await self._begin(connection)
            if self._commit_sql:
                earlier, self._commit_sql = self._commit_sql, ""
                await connection.execute(earlier)
            return await connection.run(sql, parameters)
        except (*FOREIGN, ValueError, TypeError) as error:  # the last two: a parameter that does not fit its type
            raise translated(error, f"running {' '.join(sql.split())[:60]!r}") from error

    async def __aenter__(self) -> PostgresTransaction:
        database = self.database
        if self._check and database.place is None:
            await database.check()
        await database.take_seat()
        try:
            self._connection = await database.acquire()
            if not self._lazily:
                await self._begin(self._connection)
        except BaseException as error:
            if self._connection is not None:
                await database.release(self._connection)
            database.leave_seat()
            if isinstance(error, FOREIGN):
                raise translated(error, "beginning a transaction") from error
            raise
        self.task = asyncio.current_task()
        self.open = True
        return self

    async def _begin(self, connection: ServerConnection, *statements: str) -> str:
        if self.tenant is not None:
            statements = (f"SET LOCAL posthouse.tenant = {literal(self.tenant)}", *statements)
        if (seconds := patience()) is not None:
            statements = (f"SET LOCAL lock_timeout = {ceil(seconds * 1000)}", *statements)
        if self.database.hasty:
            statements = (LASTING, *statements)
        self._begun = True
        try:
            return await connection.begin(*statements)
        except BaseException:
            self.database.abandon(connection)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._connection
        assert connection is not None
        self.open = False
        connection.watcher = None
        try:
            if error is None:
                await self._commit(connection)
            elif isinstance(error, Exception) and not isinstance(error, DeadlineExceeded | TimeoutError):
                await self._roll_back(connection)
                trouble = database_trouble(error, lost=connection.is_closed())
                if trouble is not None:
                    raise trouble from error
            else:
                self.database.abandon(connection)
        except asyncio.CancelledError:
            self.database.abandon(connection)
            raise
        finally:
            self.task, self._connection = None, None
            try:
                await self.database.release(connection)
            finally:
                self.database.leave_seat()

    async def _commit(self, connection: ServerConnection) -> None:
        if not self._begun:
            return
        lost_before = connection.is_closed()
        if not lost_before and not connection.is_in_transaction():
            self.database.abandon(connection)  # its driver still takes it to be in one
            raise TransactionClosed("the transaction was ended inside its block, by a statement: this is not a commit")
        try:
            if self._commit_sql:
                said = await connection.commit(self._commit_sql)
            else:
                said = await connection.commit()
        except FOREIGN as error:
            if is_lost(error) and not lost_before:
                self.database.abandon(connection)
                raise CommitUnknown(f"committing: {error}: it may or may not have happened") from error
            if self._commit_sql:  # it failed, so that there was no COMMIT
                await self._roll_back(connection)
            raise translated(error, "committing") from error
        if said == "ROLLBACK":
            raise StoreError(PASSED_OVER)
        if self.appended:
            self.database.notifier.notify()

    async def _roll_back(self, connection: ServerConnection) -> None:
        try:
            if connection.is_closed() or not self._begun:
                return
            if connection.is_in_transaction():
                await connection.roll_back()
            else:
                self.database.abandon(connection)
        except FOREIGN as error:
            log.info("rolling back failed, the connection is replaced: %s", error)
            self.database.abandon(connection)


def _nothing() -> None:
    """Nobody listens."""


class Begun(Protocol):
    """What the tables need of a transaction that the store began."""

    appended: bool

    def ready(self) -> object:
        """TransactionClosed when it has ended."""
        ...

    async def run(self, sql: str, *parameters: object) -> Rows:
        """A statement of ours."""
        ...

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps to their end."""
        ...


BEGUN = (PostgresTransaction, HandlerTransaction)


def own(tx: Transaction) -> Begun:
    """A transaction that the store began; StoreError for any other."""
    if isinstance(tx, BEGUN):
        return tx
    raise StoreError("this takes a transaction that the store began, not a joined one")

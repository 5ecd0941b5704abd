"""HandlerTransaction: a transaction that the store began on a connection of another library than asyncpg."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

from posthouse.errors import CommitUnknown, DeadlineExceeded, PosthouseError, TransactionClosed
from posthouse.local.naming import given_name
from posthouse.redaction import words_of
from posthouse.store import Parameters, Rows, Submit
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.database import LASTING, Database, carried_out
from posthouse.stores.postgres.errors import cause_of, database_trouble, is_foreign, is_lost, translated
from posthouse.stores.postgres.schema import PLACE
from posthouse.stores.postgres.steps import Steps
from posthouse.stores.sessions import Shape, module_of, original_of
from posthouse.stores.sessions.handler import Handlers, HandlerSession, Host, Run

log = logging.getLogger("posthouse.store")

T = TypeVar("T")

# Whose rows this transaction sees.
FOR_TENANT = "SELECT set_config('posthouse.tenant', CAST($1 AS text), true)"


class HandlerSessions:
    """Begins transactions in the shape that a handler asks for, on the library that has it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._handlers: dict[str, Handlers] = {}

    def begin(self, shape: Shape, tenant: str | None = None) -> HandlerTransaction:
        """A transaction on that library, other than asyncpg."""
        if shape.on not in self._handlers:
            self._handlers[shape.on] = module_of(shape.on).handlers(self._host())
        return HandlerTransaction(self._database, self._handlers[shape.on].session(), tenant)

    async def aclose(self) -> None:
        """Close what is idle; what is in use closes with its transaction."""
        handlers, self._handlers = self._handlers, {}
        for each in handlers.values():
            await each.aclose()

    def _host(self) -> Host:
        database, settings = self._database, self._database.settings
        return Host(
            url=database.url,
            name=database.name,
            client_name=given_name(database.url) or database.handlers_name,
            writers=settings.writers,
            patience=settings.patience,
            pooled=settings.pooled,
            connect=database.connect,
            end_session=database.end_session,
            is_home=self._is_home,
        )

    def _is_home(self, run: Run) -> bool:
        found, place = run(self._database.text(PLACE), ()), self._database.place
        return place is not None and bool(found) and str(found.one()[0]) == place.identity


class HandlerTransaction:
    """READ COMMITTED unless the library was told otherwise; for one `tenant` where the store keeps tenants apart. It ends as
    PostgresTransaction does: committed with its block, rolled back when that raises, and cut off after a deadline or a
    cancellation."""

    needs_loop = True

    def __init__(self, database: Database, session: HandlerSession, tenant: str | None = None) -> None:
        self.database = database
        self.open = False
        self.appended = False
        """Whether the outbox got something, so that a relay should look."""
        self.savepoints = Savepoints()
        """Nobody follows those of the handler's own connection: what he returns is said when he has returned."""
        self._session = session
        self._tenant = tenant

    @property
    def submit(self) -> Submit | None:
        return self._session.submit

    @property
    def connection(self) -> object:
        self.ready()
        return self._session.connection

    async def attend(self) -> Detach:
        return lambda: None

    def view(self, wanted: type) -> AbstractContextManager[object]:
        """The transaction in the shape that it was begun for."""
        self.ready()
        return self._session.view(wanted)

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        self.ready()
        try:
            found = await self._session.run(sql, parameters)
        except Exception as error:
            self.savepoints.hear_failed(sql)
            raise _ours(error, _words(sql)) from error
        self.savepoints.hear(sql)
        return found

    async def run(self, sql: str, *parameters: object) -> Rows:
        """A statement of ours."""
        self.ready()
        try:
            return await self._session.ours(self.database.text(sql), parameters)
        except Exception as error:
            raise _ours(error, _words(sql)) from cause_of(error)

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps to their end."""
        return await carried_out(steps, lambda sql, parameters: self.run(sql, *parameters))

    def ready(self) -> None:
        """Refuse what comes too late."""
        if not self.open:
            raise TransactionClosed("the transaction has ended: its deadline passed or its block was left")

    async def __aenter__(self) -> HandlerTransaction:
        if self.database.place is None:
            await self.database.check()
        await self.database.take_seat()
        try:
            await self._session.begin()
            if self._tenant is not None:
                await self._session.ours(FOR_TENANT, (self._tenant,))
            if self.database.hasty:
                await self._session.ours(LASTING, ())
        except BaseException as error:
            await self._end(cut=True)
            if isinstance(error, Exception):
                raise _ours(error, "beginning a transaction") from error
            raise
        self.open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open = False
        cut = True
        try:
            if error is None:
                await self._commit()
                cut = False
            elif isinstance(error, Exception) and not isinstance(error, DeadlineExceeded | TimeoutError):
                lost = self._session.lost
                cut = not await self._rolled_back()
                trouble = database_trouble(error, lost=lost)
                if trouble is not None:
                    raise trouble from error
        finally:
            await self._end(cut=cut)

    async def _commit(self) -> None:
        lost_before = self._session.lost
        try:
            await self._session.commit()
        except PosthouseError:
            raise
        except Exception as error:
            original = original_of(error)
            if is_lost(original) and not lost_before:
                raise CommitUnknown(f"committing: {original}: it may or may not have happened") from error
            if is_foreign(original):
                raise translated(original, "committing") from error
            raise
        if self.appended:
            self.database.notifier.notify()

    async def _rolled_back(self) -> bool:
        try:
            await self._session.roll_back()
        except Exception as error:
            log.info("rolling back failed, the connection is replaced: %s", words_of(error))
            return False
        return True

    async def _end(self, *, cut: bool) -> None:
        """Leave the place to the next one, also when the caller is cancelled meanwhile."""
        leaving = self._session.cut() if cut else self._session.give_back()
        try:
            await leaving
        except asyncio.CancelledError:
            await self._session.cut()
            raise
        except Exception as error:
            log.info("a connection was dropped: %s", words_of(error))
            await self._session.cut()
        finally:
            self.database.leave_seat()


def _words(sql: str) -> str:
    return f"running {' '.join(sql.split())[:60]!r}"


def _ours(error: Exception, doing: str) -> Exception:
    """The error of our tree; one that no driver raised stays what it is."""
    original = original_of(error)
    if isinstance(original, PosthouseError) or not is_foreign(original):
        return error
    return translated(original, doing)

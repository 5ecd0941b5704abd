"""Django, on psycopg 3, psycopg2 or sqlite3. On PostgreSQL a handler gets the thread's own connection, inside `transaction.atomic()`, so that it may
use the ORM."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from posthouse.errors import ConfigurationError, StoreError, TransactionClosed
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import PYFORMAT, QUESTION, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Kind, Session, autocommit, elsewhere, put_before
from posthouse.stores.sessions.handler import Handlers, Host
from posthouse.stores.sessions.libpq import by_name, named
from posthouse.stores.sessions.refusing import ENDED_INSIDE, PASSED_OVER, refuse_ending
from posthouse.stores.sessions.threaded import SocketHandle, ThreadedHandlers

log = logging.getLogger("posthouse.store")

IN_ERROR = 3
"""libpq's PQTRANS_INERROR, which psycopg and psycopg2 both pass on."""


def join(theirs: Any) -> Session | None:
    """`django.db.connection`, or one of `django.db.connections`."""
    return DjangoSession(theirs) if hasattr(theirs, "in_atomic_block") else None


def handlers(host: Host) -> Handlers:
    """Connections for handlers, each in a thread."""
    return ThreadedHandlers(lambda: DjangoHandler(host), host.end_session)


class DjangoSession(Session):
    """It commits each statement outside of an atomic block."""

    async def attend(self, savepoints: Savepoints) -> Detach:
        """Savepoints are statements; the end of the whole is none, and possible where no atomic block is open."""
        wrapper: Any = self.theirs if isinstance(self.theirs, BaseDatabaseWrapper) else connections[self.theirs.alias]

        def see() -> None:
            if wrapper.vendor == "sqlite" and wrapper.connection is not None:
                savepoints.see(wrapper.connection.in_transaction)

        def listening(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
            try:
                found = execute(sql, parameters, many, context)
            except BaseException as error:
                savepoints.hear_failed(sql, error)
                raise
            finally:
                see()
            savepoints.hear(sql)
            return found

        def ending(end: Callable[[], object], committed: bool) -> object:
            try:
                found = end()
            except BaseException:
                savepoints.hear_of_end()
                raise
            savepoints.hear_of_end(committed=committed)
            return found

        see()
        detach = put_before(
            wrapper, _rollback=partial(ending, wrapper._rollback, False), _commit=partial(ending, wrapper._commit, True)
        )
        wrapper.execute_wrappers.append(listening)

        def end() -> None:
            wrapper.execute_wrappers.remove(listening)
            detach()

        return end

    async def refuse_autocommit(self, kind: Kind) -> None:
        if self.theirs.vendor != kind.lower():
            raise elsewhere(f"Django's connection {self.theirs.alias!r}", self.theirs.vendor, kind)
        if not self.theirs.in_atomic_block and self.theirs.get_autocommit():
            raise autocommit("open `with transaction.atomic():` first, for the same connection")

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        if self.theirs.vendor == "sqlite":
            return await self.run(sql, parameters)
        return _ran(self.theirs, by_name(sql), named(parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        return _ran(self.theirs, sql, parameters)


def _ran(connection: Any, sql: str, parameters: Parameters) -> Rows:
    on_sqlite = connection.vendor == "sqlite"
    if on_sqlite and isinstance(parameters, Mapping):
        sql, parameters = bound(sql, parameters, QUESTION)
        sql = sql.replace("%", "%%") if parameters else sql  # for Django, which leaves `?` alone
    elif not on_sqlite:
        sql, parameters = bound(sql, parameters, PYFORMAT)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        rows = Rows(tuple(map(_plain, row)) for row in (cursor.fetchall() if cursor.description else ()))
        rows.rowcount = cursor.rowcount
        return rows


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview) else value  # what psycopg2 makes of bytea


# For handlers.


class DjangoHandler:
    """Django connects by its own settings and keeps the connection for the thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._alias = alias_for(host)
        self._wrapper: Any = None
        self._driver: Any = None
        self._socket: SocketHandle | None = None
        self._block = ExitStack()
        self._committed = False

    @property
    def connection(self) -> Any:
        return self._wrapper

    @property
    def lost(self) -> bool:
        return self._driver is None or bool(self._driver.closed)

    @property
    def process(self) -> int | None:
        return None if self.lost or self._host.pooled else int(self._driver.info.backend_pid)

    def begin(self) -> None:
        self._wrapper = wrapper = connections[self._alias]
        if wrapper.connection is not None and (self.lost or self._socket is None or self._socket.stale):
            wrapper.close()
        self._block = ExitStack()
        self._block.enter_context(transaction.atomic(using=self._alias))
        self._committed = False
        transaction.on_commit(self._note_commit, using=self._alias)
        self._block.enter_context(wrapper.execute_wrapper(_refusing))
        if wrapper.connection is not self._driver:
            self._meet(wrapper)

    def _meet(self, wrapper: Any) -> None:
        """A new connection: it must be to the database of the store, or a claim would not be the store's."""
        if self._socket is not None:
            self._socket.close()
        self._driver = wrapper.connection
        self._socket = SocketHandle(self._driver.fileno())
        if not self._host.is_home(self.ours):
            raise ConfigurationError(
                f"Django's database {self._alias!r} is not the one of the store: the handler's rows and the inbox could not "
                "commit together. Give DATABASES and the store the same database"
            )

    def _note_commit(self) -> None:
        self._committed = True

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return _ran(self._wrapper, by_name(sql), named(parameters))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        return _ran(self._wrapper, sql, parameters)

    def view(self, wanted: type) -> AbstractContextManager[object]:
        return contextlib.nullcontext(self._wrapper)

    def commit(self) -> None:
        failed = self._wrapper.needs_rollback or int(self._driver.info.transaction_status) == IN_ERROR
        if failed and not self.lost:
            self.roll_back()
            raise StoreError(PASSED_OVER)
        try:
            self._block.close()
        except Exception as error:
            if not self._committed:
                raise
            log.exception("a function that waited for the commit failed, after it: %s", error)
        if not self._committed:
            raise TransactionClosed(ENDED_INSIDE)

    def roll_back(self) -> None:
        if self._wrapper.in_atomic_block:
            self._wrapper.needs_rollback = True
        self._block.close()

    def clean(self) -> None:
        """Django's own settings of the session stay, and so does what a handler sets: as between two requests."""

    def cut(self) -> None:
        if self._socket is not None:
            self._socket.shut_down()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.roll_back()
        if self._socket is not None:
            self._socket.close()
        if self._wrapper is not None:
            self._wrapper.close()


def alias_for(host: Host) -> str:
    """The name in DATABASES that is the store's database; `default` before others."""
    found = [
        alias
        for alias in connections
        if "postg" in str(connections.settings[alias]["ENGINE"]).lower()
        and str(connections.settings[alias]["NAME"]) == (host.name or str(connections.settings[alias]["NAME"]))
    ]
    if not found:
        raise ConfigurationError(
            f"none of Django's DATABASES is the database {host.name!r} of the store "
            f"({urlsplit(host.url).hostname}): the handler's rows and the inbox could not commit together"
        )
    return "default" if "default" in found else found[0]


def _refusing(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
    refuse_ending(sql)
    return execute(sql, parameters, many, context)

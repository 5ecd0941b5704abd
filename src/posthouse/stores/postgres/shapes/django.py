"""A line on Django: the thread's own connection, inside `transaction.atomic()`, so that a handler may use the ORM."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from urllib.parse import urlsplit

from django.db import connections, transaction

from posthouse.errors import ConfigurationError, StoreError, TransactionClosed
from posthouse.store import Parameters, Rows
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import PASSED_OVER
from posthouse.stores.postgres.refusing import refuse_ending
from posthouse.stores.postgres.schema import PLACE
from posthouse.stores.postgres.shapes.plug import Plug
from posthouse.stores.postgres.shapes.transaction import ENDED_INSIDE
from posthouse.stores.postgres.statements.django import DjangoStatements

log = logging.getLogger("posthouse.store")

IN_ERROR = 3
"""libpq's PQTRANS_INERROR, which psycopg and psycopg2 both pass on."""


class DjangoLine:
    """Django connects by its own settings and keeps the connection for the thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._alias = alias_for(database)
        self._wrapper: Any = None
        self._driver: Any = None
        self._plug: Plug | None = None
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
        if self.lost or self._database.settings.pooled:
            return None
        return int(self._driver.info.backend_pid)

    def begin(self) -> None:
        self._wrapper = wrapper = connections[self._alias]
        if wrapper.connection is not None and (self.lost or self._plug is None or self._plug.stale):
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
        if self._plug is not None:
            self._plug.close()
        self._driver = wrapper.connection
        self._plug = Plug(self._driver.fileno())
        place = self._database.place
        found = DjangoStatements(wrapper).ours(self._database.text(PLACE), ())
        if place is None or not found or str(found.one()[0]) != place.identity:
            raise ConfigurationError(
                f"Django's database {self._alias!r} is not the one of the store: the handler's rows and the inbox could not "
                "commit together. Give DATABASES and the store the same database"
            )

    def _note_commit(self) -> None:
        self._committed = True

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return DjangoStatements(self._wrapper).ours(sql, parameters)

    def run(self, sql: str, parameters: Parameters) -> Rows:
        return DjangoStatements(self._wrapper).run(sql, parameters)

    def view(self, wanted: type) -> AbstractContextManager[object]:
        return self._viewed()

    @contextlib.contextmanager
    def _viewed(self) -> Iterator[object]:
        yield self._wrapper

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
        if self._plug is not None:
            self._plug.pull()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.roll_back()
        if self._plug is not None:
            self._plug.close()
        if self._wrapper is not None:
            self._wrapper.close()


def alias_for(database: Database) -> str:
    """The name in DATABASES that is the store's database; `default` before others."""
    found = [
        alias
        for alias in connections
        if "postg" in str(connections.settings[alias]["ENGINE"]).lower()
        and str(connections.settings[alias]["NAME"]) == (database.name or str(connections.settings[alias]["NAME"]))
    ]
    if not found:
        raise ConfigurationError(
            f"none of Django's DATABASES is the database {database.name!r} of the store "
            f"({urlsplit(database.url).hostname}): the handler's rows and the inbox could not commit together"
        )
    return "default" if "default" in found else found[0]


def _refusing(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
    refuse_ending(sql)
    return execute(sql, parameters, many, context)

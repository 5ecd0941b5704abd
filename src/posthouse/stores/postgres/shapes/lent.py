"""LentConnection: a psycopg connection in the hands of a handler, who may use it but not end its transaction."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import psycopg

from posthouse.stores.postgres.refusing import refuse, refuse_ending


class Hands(enum.Enum):
    """Who has the connection now: a handler as it is, SQLAlchemy for a handler, or SQLAlchemy for its own housekeeping."""

    HANDLER = enum.auto()
    SESSION = enum.auto()
    HOUSEKEEPING = enum.auto()


class LentCursor(psycopg.Cursor[Any]):
    """Refuses to end the transaction."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(query)
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        refuse_ending(query)
        super().executemany(query, params_seq, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(query)
        return super().stream(query, params, **options)

    def copy(self, statement: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(statement)
        return super().copy(statement, params, **options)


class LentConnection(psycopg.Connection[Any]):
    """Only `end` ends its transaction. SQLAlchemy calls commit, rollback and close for its own housekeeping, where they
    mean nothing. A rollback of a session at work is one, of everything: SQLAlchemy does it by itself when a flush fails,
    and refusing it would hide why. The transaction's block reports it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = LentCursor
        self.hands = Hands.HANDLER
        self.rolled_back = False

    def commit(self) -> None:
        if self.hands is not Hands.HOUSEKEEPING:
            refuse("commit()")

    def rollback(self) -> None:
        if self.hands is Hands.HANDLER:
            refuse("rollback()")
        if self.hands is Hands.SESSION:
            self.rolled_back = True
            super().rollback()

    def close(self) -> None:
        if self.hands is Hands.HANDLER:
            refuse("close()")

    def add_notice_handler(self, callback: Any) -> None:
        if callback not in self._notice_handlers:  # SQLAlchemy adds the same one each time
            super().add_notice_handler(callback)

    def end(self, *, commit: bool) -> None:
        """For whoever began the transaction."""
        self.hands, self.rolled_back = Hands.HANDLER, False
        super().commit() if commit else super().rollback()

    def hang_up(self) -> None:
        """Close it for good."""
        super().close()

    @contextlib.contextmanager
    def in_hands_of(self, hands: Hands) -> Iterator[None]:
        """While the block runs."""
        before, self.hands = self.hands, hands
        try:
            yield
        finally:
            self.hands = before

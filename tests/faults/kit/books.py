"""Books: looking into what a world has written, without the code under test, whichever database it is in."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.faults.kit.failpoint import plain_connect

OURS = re.compile(r"\bposthouse_(\w+)")

MISSING = (sqlite3.OperationalError, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
BEING_MADE = (*MISSING, psycopg.OperationalError)
"""What a look meets while the tables are made, or while another process or the server recovers."""


class Books:
    """The tables of `orders` and `billing`, and the `log`: three files, or schemas of one database beside a log that may
    be a file still. Questions are written for SQLite: `posthouse_shard` and `?` become what the other one calls them.
    `patience` is how long, in seconds, to wait for a file that is locked."""

    def __init__(self, folder: Path, database: str = "", log: str = "embedded", *, patience: float = 5.0) -> None:
        self._folder = folder
        self._patience = patience
        self._database = database
        self._log_in_database = log == "postgres"
        self._files: dict[str, sqlite3.Connection] = {}
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything; the next question opens it anew."""
        for connection in self._files.values():
            connection.close()
        self._files.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, book: str, question: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The answer to a question, or what a change returned."""
        if self.in_database(book):
            sql = self._worded(book, question)
            cursor = self._connected().execute(sql, tuple(parameters) or None)
            return cursor.fetchall() if cursor.description else []
        return self._file(book).execute(question, tuple(parameters)).fetchall()

    def in_database(self, book: str) -> bool:
        """Whether a book is in the PostgreSQL database."""
        return bool(self._database) and (book != "log" or self._log_in_database)

    def _worded(self, book: str, question: str) -> str:
        return OURS.sub(rf"{book}.\1", question).replace("?", "%s")

    def _file(self, book: str) -> sqlite3.Connection:
        if book not in self._files:
            path = self._folder / f"{book}.db"
            self._files[book] = plain_connect(path, timeout=self._patience, isolation_level=None)
        return self._files[book]

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._database, autocommit=True, connect_timeout=5, options="-c search_path=public,posthouse_log"
            )
        return self._connection

"""One way of writing SQL for both databases: `?` for values, texts and whole numbers alone, dates as ISO text.

A service of the platform runs on SQLite on a laptop and on PostgreSQL in production. What differs between them for
statements as plain as these is how a value is marked and how a row is locked."""

from __future__ import annotations

import sqlite3
from functools import cache
from itertools import count
from typing import TypeVar

import msgspec

from posthouse import Model, Tx
from posthouse.store import Rows

T = TypeVar("T")


async def run(tx: Tx | Model, sql: str, *values: str | int | None) -> Rows:
    """Run one statement. Rows read with FOR UPDATE stay as they are until the transaction ends."""
    return await tx.execute(_spoken(sql, isinstance(tx.connection, sqlite3.Connection)), values)


def typed(rows: Rows, kind: type[T]) -> list[T]:
    """Rows as what they hold: `typed(rows, tuple[str, int])`, or a class whose fields are the columns in order."""
    return [msgspec.convert(row, kind) for row in rows]


@cache
def _spoken(sql: str, sqlite: bool) -> str:
    if sqlite:
        return sql.replace(" FOR UPDATE", "")  # one writer at a time: what is read is locked
    numbers = count(1)
    return "".join(f"${next(numbers)}" if character == "?" else character for character in sql)

"""Steps: statements without I/O. A generator yields (sql, parameters) and is sent the rows; whoever drives it decides
how they reach the database, so that one text serves every driver. Parameters are `$1`, `$2` … in order, each once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from posthouse.store import Rows

T = TypeVar("T")
Steps = Generator[tuple[str, Sequence[object]], Rows, T]

NOW = "coalesce($1, extract(epoch FROM clock_timestamp())::double precision)"
"""The time: the first parameter, or where that is NULL the database's own clock."""


def literal(value: object) -> str:
    """A value inside a statement, where it cannot be a parameter. Text without NUL, which no statement can carry."""
    if isinstance(value, bytes):
        plain = value.isascii() and b"\\" not in value and b"\x00" not in value
        value = value.decode() if plain else f"\\x{value.hex()}"  # the server reads either; the first is half as long
    if isinstance(value, str) and "\x00" not in value:
        text = value.replace("'", "''")
        return f"'{text}'" if "\\" not in text else "E'" + text.replace("\\", "\\\\") + "'"
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return repr(value)
    raise ValueError(f"{value!r} cannot be written into a statement")

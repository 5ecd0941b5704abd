"""Steps: statements without I/O. A generator yields (sql, parameters) and is sent the rows; whoever drives it decides
how they reach the database, so that one text serves plain, SQLAlchemy, synchronous and asynchronous connections."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from posthouse.store import Rows

T = TypeVar("T")
Steps = Generator[tuple[str, Sequence[object]], Rows, T]


def carry_out(steps: Steps[T], run: Callable[[str, Sequence[object]], Rows]) -> T:
    """Drive `steps` to their end with a function that runs one statement."""
    try:
        sql, parameters = next(steps)
        while True:
            sql, parameters = steps.send(run(sql, parameters))
    except StopIteration as done:
        result: T = done.value
        return result

"""Steps: statements without I/O. A generator yields (sql, parameters) and is sent the rows; whoever drives it decides
how they reach the database, so that one text serves plain, SQLAlchemy, synchronous and asynchronous connections."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

import msgspec

from posthouse.store import Rows

T = TypeVar("T")
Steps = Generator[tuple[str, Sequence[object]], Rows, T]

_decoder = msgspec.json.Decoder(dict[str, str])


def carry_out(steps: Steps[T], run: Callable[[str, Sequence[object]], Rows]) -> T:
    """Drive `steps` to their end with a function that runs one statement."""
    try:
        sql, parameters = next(steps)
        while True:
            sql, parameters = steps.send(run(sql, parameters))
    except StopIteration as done:
        result: T = done.value
        return result


def packed(headers: Mapping[str, str]) -> str | None:
    """Headers as they are stored."""
    return msgspec.json.encode(headers).decode() if headers else None


def unpacked(headers: str | None) -> dict[str, str]:
    """Headers as they were given."""
    return _decoder.decode(headers) if headers else {}

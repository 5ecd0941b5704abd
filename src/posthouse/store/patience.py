"""Patience: how long transactions may wait for what others hold, where somebody waits for the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_patience: ContextVar[float | None] = ContextVar("posthouse_patience", default=None)


@contextlib.contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Transactions that are begun inside wait for so many seconds at most, each time that another holds what they need: a key
    whose handler runs, the one writer of SQLite. Then StoreBusy, and nothing was written."""
    before = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(before)


def patience() -> float | None:
    """How many seconds a transaction that begins now may wait for a lock; None: as long as its store does."""
    return _patience.get()

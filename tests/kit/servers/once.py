"""Once: what several test runs on one machine fetch or build for all of them, one after the other."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(__file__).parents[3] / ".cache"


@contextlib.contextmanager
def once(name: str) -> Iterator[None]:
    """Alone with this name, among all runs from this folder: look whether it is there, and make it if not."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Once: put where nothing is, in a place that may refuse although nothing is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from posthouse.clock import backoff

T = TypeVar("T")

TRIES = 6
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0
"""Seconds between two of them."""


def put_once(put: Callable[[], bool], found: Callable[[], T | None]) -> T | None:
    """Put what is to be there for good; None once this call did, or what is `found` there. A refusal alone says nothing: S3 answers
    412 where something is, and 409 where others try too or the name was just deleted, and its driver calls both «already exists». So
    what was refused is looked for, and put again while nothing is there. Blocking; TimeoutError where it never was either."""
    for attempt in range(1, TRIES + 1):
        if put():
            return None
        if (there := found()) is not None:
            return there
        if attempt < TRIES:
            time.sleep(backoff(attempt, FIRST_PAUSE, LAST_PAUSE))
    raise TimeoutError(f"it was refused {TRIES} times as if it were there, and it is not")

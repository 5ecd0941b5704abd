"""Words: what foreign code makes of itself, and may fail to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def attempted(make: Callable[[], T], otherwise: T) -> T:
    """What it makes, or else the other, whatever it raises: panics of extensions are no `Exception`. A request to stop goes on."""
    try:
        return make()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return otherwise

"""Forks: in the child of one no thread of the parent runs, and a lock that one of them held stays held: what has such begins anew."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    def begin_anew(self) -> None: ...


_those: weakref.WeakSet[Forked] = weakref.WeakSet()


def tell(one: Forked) -> None:
    """From now on it is told, as long as it lives, in each child before anything else runs there."""
    _those.add(one)


def _in_child() -> None:
    for one in list(_those):
        one.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_in_child)

"""Health: whether a process may be left alone, may be sent work, and what each part of it waits for. Asking costs nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

PartState = Literal["ready", "starting", "waiting", "unused"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartHealth:
    """One part: the store, the broker, or a loop."""

    name: str
    state: PartState
    """`waiting`: its last try failed, and it tries again. `starting`: it waits for the broker to begin. `unused`: nothing that
    runs here talks to it."""
    since: float | None = None
    """Since when it waits, in seconds since 1970."""
    reason: str = ""
    """What the last try ended with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """What was seen last; nobody is asked for it."""

    live: bool
    """False: this process does not mend by itself, start it again."""
    ready: bool
    """Whether work may come: the store answers, so that transactions can publish. A broker that is away delays events and
    loses none."""
    parts: Sequence[PartHealth]
    """The store, the broker, and each loop that runs or is about to."""
    problem: str = ""
    """Why it is not live."""

"""Pulse: what a loop waits for, so that somebody can see when it takes too long."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType

PATIENCE = 60.0
"""Seconds after which an answer of a broker or a database does not come any more."""
LAST_WORDS = 5.0
"""Seconds for what is given up, to end when it is cancelled."""


class Pulse:
    """Of one loop. Every await on foreign code is made within `doing`; a watcher looks from time to time.

    Time is counted in the watcher's looks, not by a clock: a process that was stopped, or a machine that slept, hangs
    nowhere.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._open: dict[Doing, None] = {}

    def doing(self, what: str, *, longer: float = 0.0) -> Doing:
        """A block that should end, or be `alive` again, within the patience and as many seconds `longer` as one step of it
        may rightly take."""
        return Doing(self, what, longer)

    @property
    def last_words(self) -> float:
        """Seconds for what is given up, to end when it is cancelled; never more than the patience."""
        return min(LAST_WORDS, self.patience)

    def look(self, seconds: float) -> str:
        """So many seconds went by since the last look. In words what takes too long by now; empty when all is well."""
        for doing in self._open:
            doing.age += seconds
        late = [doing for doing in self._open if doing.age > self.patience + doing.longer]
        return f"{late[0].what} for {late[0].age:.0f} s" if late else ""

    def reset(self) -> None:
        """What is open was given up."""
        self._open = {}


class Doing:
    """One await, or a few of them."""

    __slots__ = ("_outer", "_pulse", "age", "longer", "what")

    def __init__(self, pulse: Pulse, what: str, longer: float) -> None:
        self._pulse = pulse
        self.what = what
        self.longer = longer
        self.age = 0.0
        """Seconds since it began, or was alive."""

    def __enter__(self) -> None:
        self._pulse._open[self] = None
        self._outer = _current.get()
        _current.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.set(self._outer)
        self._pulse._open.pop(self, None)


_current: ContextVar[Doing | None] = ContextVar("posthouse_doing", default=None)


def alive() -> None:
    """One of the many things that the block around this does is done: an event, an answer. Whoever gets on does not hang,
    however long all of them take together. Without such a block, nothing."""
    doing = _current.get()
    if doing is not None:
        doing.age = 0.0

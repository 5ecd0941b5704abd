"""PORT: seals: what proves that a fact is as its producer said it. The seam asks; `posthouse.trust` answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from posthouse.events import Event

SEAL = "dssematerial"
"""The extension that holds a seal: CloudEvents' own."""


Seal = Callable[[Event[bytes]], Event[bytes]]
"""Seals a fact with one key, whatever becomes of that meanwhile."""


class Arrival(NamedTuple):
    """Where and when a frame came in. `at`: when the broker accepted it, or when it was held first, in seconds since 1970; never the
    time that it carries. `held`: it comes from our own table of held events, where operators may have edited it."""

    topic: str
    at: float
    held: bool = False


class Seals(Protocol):
    """Computes, and waits for nobody."""

    def sealer(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Seal:
        """What seals such a fact, for whoever has to know it before he takes a number. The rest as for `seal`."""
        ...

    def seal(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Event[bytes]:
        """A fact as it goes into the outbox, with its number and its lineage: the same with a seal among its extensions. One that it had
        is replaced. `waiting`: it is a timer, and its seal proves no fact. EventError where there is no key for it."""
        ...

    def is_intact(self, topic: str, event: Event[bytes]) -> bool:
        """Whether a timer that lay in our own store is as it was sealed."""
        ...

    def prove(self, arrival: Arrival, event: Event[bytes]) -> Event[bytes]:
        """What came in, as far as its seal covers it; as it is where none is asked for. Raises FrameRefused."""
        ...

    def refuse_changed(self, arrival: Arrival, why: str) -> None:
        """What came in, or what was held, cannot be read, or is held as another than it is. Raises FrameRefused where a seal is asked for:
        it proves nothing, and whoever changed it may have meant that."""
        ...

    def reseal(self, topic: str, event: Event[bytes], by: str) -> Event[bytes]:
        """A held event that an operator edited, with a seal of his. EventError where there is no key for that."""
        ...

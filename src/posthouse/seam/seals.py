"""PORT: seals: what proves that a fact is as its producer said it. The seam asks; `posthouse.trust` answers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from posthouse.events import Event

SEAL = "dssematerial"
"""The extension that holds a seal: CloudEvents' own."""


class Draft(Protocol):
    """A fact that is about to be sealed, with one key, whatever becomes of that meanwhile."""

    @property
    def event(self) -> Event[bytes]:
        """The fact with all that its seal covers but for its number and lineage, and in the place of the seal a text that is as long as
        it can get. By its beginning, of 48 characters, it is told from whatever anybody says."""
        ...

    def sealed(self, sequence: int | None, lineage: int) -> str:
        """The seal of the fact with this number."""
        ...


class Place(NamedTuple):
    """How an event is held: what its row says, and no signature covers unless an operator has left one. `intact`: the digest is that
    of its bytes. `in_turn`: it has the number that it says, if it says one. `loose`: nobody cares for that of this event."""

    name: str
    digest: bytes
    intact: bool = True
    in_turn: bool = True
    loose: bool = False


class Arrival(NamedTuple):
    """Where and when a frame came in. `at`: when the broker accepted it, or when it was held first, in seconds since 1970; never the
    time that it carries. `held`: how it lies in our own table of held events, where operators may have edited it."""

    topic: str
    at: float
    held: Place | None = None


class Claim(Protocol):
    """That one event is as it was sealed."""

    def verify(self) -> None:
        """Do the costly part now. In any thread: it needs nothing but this."""
        ...

    def proved(self) -> Event[bytes]:
        """The event, as far as its seal covers it, by the keys as they are now; what was not verified yet is verified. Raises FrameRefused."""
        ...


class Seals(Protocol):
    """Computes, and waits for nobody."""

    def seal(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Event[bytes]:
        """A fact as it goes into the outbox, with its number and its lineage: the same with a seal among its extensions. One that it had
        is replaced. `waiting`: it is a timer, and its seal proves no fact. EventError where there is no key for it."""
        ...

    def draft(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Draft:
        """The same for a fact that has no number yet, for whoever has to know that it can be sealed before he takes one."""
        ...

    def is_intact(self, arrival: Arrival, event: Event[bytes], *, waiting: bool = False) -> bool:
        """Whether what lay in our own store is as it was sealed, whatever is asked for; `waiting`: as a timer."""
        ...

    def asks(self, arrival: Arrival) -> bool:
        """Whether what arrived so is refused without a seal."""
        ...

    def claim(self, arrival: Arrival, event: Event[bytes]) -> Claim | None:
        """What there is to prove about what came in; None where no seal is asked for."""
        ...

    def prove(self, arrival: Arrival, event: Event[bytes], claim: Claim | None = None) -> Event[bytes]:
        """What came in, as far as its seal covers it; as it is where none is asked for. Raises FrameRefused. `claim` is that of this event,
        for whoever has had it verified ahead."""
        ...

    def refuse_changed(self, arrival: Arrival, why: str) -> None:
        """What came in, or what was held, cannot be read, or is held as another than it is. Raises FrameRefused where a seal is asked for:
        it proves nothing, and whoever changed it may have meant that."""
        ...

    def reseal(self, topic: str, event: Event[bytes], by: str, place: Place) -> Event[bytes]:
        """A held event that an operator edited, or lets run out of its turn, with a seal of his, good in this place alone. EventError
        where there is no key for that."""
        ...

    def refuses_release(self, key: str, material: bytes, signature: bytes) -> str:
        """Why a signature of published contracts is not to be believed; empty when it is."""
        ...

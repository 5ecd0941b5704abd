"""PORT: what is applied again: the events that a replay has put aside, and the keys that it has closed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from posthouse.store.transaction import Transaction


class Line(NamedTuple):
    """Events of a replay that are dealt with one after the other: those of one key, or, not `ordered`, those of a topic and a
    tenant that stand in no order."""

    topic: str
    tenant: str
    key: str
    ordered: bool


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a replay, until it is dealt with. `sequence` is 0 where it stands in no order, and its `key` empty then.
    `stored_at`: when its frame arrived, by which keys are judged; never the time in the event. `again`: it was applied before, as the inbox said when it was put aside. `attempts` are runs that failed or that nobody survived; `error` says why its line stands still."""

    job: str
    topic: str
    tenant: str
    event_id: str
    key: str = ""
    sequence: int = 0
    lineage: int = 1
    stored_at: float = 0.0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    again: bool = False
    attempts: int = 0
    error: str = ""

    @property
    def line(self) -> Line:
        """Behind whom it stands."""
        return Line(self.topic, self.tenant, self.key, self.sequence > 0)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay is: of `staged` events so many are `left`, and `still` of these stand still because they failed.
    `left_out` were in its range and are not applied."""

    staged: int
    left_out: int
    left: int
    still: int = 0
    error: str = ""

    @property
    def done(self) -> int:
        """How many were dealt with."""
        return self.staged - self.left


class Said(NamedTuple):
    """A fact that was said before, by the idempotency key that it has."""

    tenant: str
    topic: str
    idempotency_key: str
    event_id: str


class ReplayTable(Protocol):
    """What a replay has put aside. Everything of it ends with its job: whatever ends that (`JobTable`) forgets what is left, and
    opens the keys that were closed, in the same transaction."""

    async def owns(self, tx: Transaction, job: str, token: int) -> bool:
        """Whether the job runs and is this owner's; nobody else takes it over, and nobody ends it, until `tx` has ended."""
        ...

    async def stage(self, tx: Transaction, events: Sequence[Staged]) -> None:
        """Put events aside; those that are there already stay as they are."""
        ...

    async def staged(self, tx: Transaction, job: str, left_out: int) -> Standing:
        """All of them were put aside: from here on they are not looked for again. Returns how it stands."""
        ...

    async def standing(self, job: str) -> Standing | None:
        """How far it is; None while events are still put aside."""
        ...

    async def forget(self, tx: Transaction, job: str) -> None:
        """Begin putting aside anew: whoever did it died in the middle."""
        ...

    async def lines(self, job: str, after: Line | None, limit: int) -> Sequence[Line]:
        """Lines that have events left, in one order, those behind one."""
        ...

    async def of_line(self, job: str, line: Line, after: Staged | None, limit: int) -> Sequence[Staged]:
        """What is left of a line, in its order."""
        ...

    async def close(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        """Let nothing that comes behind the head of a key be applied until the key is opened; whoever is applying something of it is
        waited for. Again by another owner of the job: from then on only this one takes events. False, and nothing changed, when
        the job is another's or does not run any more, another job has closed the key, or the key has no head."""
        ...

    async def take(self, tx: Transaction, consumer: str, staged: Staged, token: int | None) -> bool:
        """This event is dealt with, when `tx` commits. False when it is not there any more, or, with a token, when its key is not
        closed by this owner."""
        ...

    async def open(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        """Let a key go on that this owner has closed and that has no event left that was applied before; False when it was open, or is
        another owner's now. What waits for its turn has still to be told."""
        ...

    async def note(self, staged: Staged) -> None:
        """Write its attempts and its error, if it is still there."""
        ...

    async def remember(self, facts: Sequence[Said], seconds: float) -> None:
        """Facts that were said: whoever says one under its key again says nothing, for so many seconds."""
        ...

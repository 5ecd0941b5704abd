"""PORT: which generations of read models there are: who fills which, how far it is, and which one is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.store.transaction import Transaction

GenerationState = Literal["building", "live", "retired"]
"""building: a rebuild fills it. live: it is read and kept up to date. retired: another one took its place."""

Phase = Literal["begun", "bulk", "closing", "following"]
"""How far a generation is. begun: its tables are there. bulk: the service's own streams are read page by page. closing: it
is settled which events come in bulk, the last of them are read. following: its consumer group brings the events."""

Source = Literal["first", "log", "streams"]
"""Where its events come from. first: it was the first one, and began as any consumer does. log: the whole log of the
broker. streams: the service's own streams, and then the broker."""


History = Literal["unknown", "whole", "partial"]
"""Whether a generation has, or will have, all that ever happened. unknown: nobody has looked yet. partial: a part of it is
nowhere that it was read from."""

NUMBERS_LOST = 1000
"""A new lineage begins its numbers of generations so much further on: a server that was lost may have given some that this one
knows nothing of, and processes may still feed them."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of a projection. `version` is that of the code that fills it. `tables` are the names of its tables, in
    the order in which they were made. `cursor` is where the bulk read goes on, in the words of the stream table, and `read`
    how many events it has handed over. `owner` fills it, until the time `until`. `drop_at` is when a retired one may go;
    None: never by itself. `history` says whether it is complete. `event_at` and `applied_at`: the time of the last event applied, and when that was; 0: none yet.
    Times are the store's, but for the last two: `made_at` is the moment of beginning, unless there is one, and `live_at` too
    where it begins live."""

    projection: str
    number: int
    version: int
    state: GenerationState = "building"
    source: Source = "first"
    phase: Phase = "begun"
    tables: Sequence[str] = ()
    cursor: str = ""
    read: int = 0
    owner: str = ""
    until: float = 0.0
    made_at: float = 0.0
    live_at: float = 0.0
    retired_at: float = 0.0
    drop_at: float | None = None
    event_at: float = 0.0
    applied_at: float = 0.0
    history: History = "unknown"
    effects: Sequence[str] = ()
    """The events of which it notes, while it is live, that their effects were said."""


class Effect(msgspec.Struct, frozen=True):
    """What a generation that is being built would have said of an event that no live one has applied: `facts` is text of the
    caller's own."""

    tenant: str
    event_id: str
    facts: str


StreamKey = tuple[str, str, str]
"""Tenant, aggregate and id of a stream."""


class ProjectionTable(Protocol):
    """Rows about generations, and for each the versions up to which streams were read in bulk. A projection has at most
    one generation that is live and one that is being built."""

    async def number(self, tx: Transaction, projection: str) -> int:
        """A number that no generation of it has ever had, the first is 1; whoever asks next waits until `tx` ends."""
        ...

    async def judge(self, projection: str, number: int, history: History) -> None:
        """Note whether it is complete, unless that is known."""
        ...

    async def begin(self, tx: Transaction, generation: Generation) -> bool:
        """Add it. False, and no effect, when the projection has one of that number, or one in that state unless it is
        `retired`."""
        ...

    async def name_tables(self, tx: Transaction, projection: str, number: int, tables: Sequence[str]) -> None:
        """Note which tables it has."""
        ...

    async def generations(self) -> Sequence[Generation]:
        """All of them, by projection and number."""
        ...

    async def expired(self) -> Sequence[tuple[str, int]]:
        """Projection and number of the retired ones that may go by now, by the store's clock."""
        ...

    async def live(self, tx: Transaction, projection: str) -> int | None:
        """The number of the live one, as the transaction sees it."""
        ...

    async def lease(self, projection: str, number: int, owner: str, seconds: float) -> bool:
        """Make `owner` the one who builds it, for so many seconds by the store's clock, or renew that. False when it is
        not being built, or another one's time is not over. An owner who asks for no seconds lets go."""
        ...

    async def advance(self, tx: Transaction, before: Generation, after: Generation) -> bool:
        """Store phase, cursor and read of `after`. False, and no effect, when it is not being built by its owner, or does not
        stand where `before` does: then a server that took over lacks what was done meanwhile."""
        ...

    async def swap(self, tx: Transaction, generation: Generation, drop_after: float | None) -> bool:
        """Let it be the live one from now on and retire the one before, which may go `drop_after` seconds later. Waits for
        whoever has its state `confirmed`, and they for `tx`. False, and no effect, when it is not being built by its owner, or stands elsewhere."""
        ...

    async def confirmed(self, tx: Transaction, projection: str, number: int) -> GenerationState | None:
        """The state of a generation, which stays so until `tx` ends; None when there is none."""
        ...

    async def say(self, tx: Transaction, projection: str, tenant: str, event_id: str) -> bool:
        """Note that what a projection has to say of an event is said by this transaction. False when it was said before, by
        whichever generation; waits for one that is about to."""
        ...

    async def unsaid(self, tx: Transaction, projection: str, tenant: str, event_ids: Sequence[str]) -> Collection[str]:
        """Those of the events whose effects were not said."""
        ...

    async def leave(self, tx: Transaction, projection: str, number: int, effect: Effect) -> None:
        """Leave an effect to the swap. Nobody who says it waits for this."""
        ...

    async def left(self, projection: str, number: int) -> Sequence[Effect]:
        """What was left to the swap of a generation, of all tenants, in the order of leaving: what is committed, said meanwhile or not."""
        ...

    async def purge_effects(self, age: float, limit: int) -> int:
        """Forget up to `limit` effects that were said or left more than `age` seconds ago, by the store's clock. Returns how many."""
        ...

    async def note(self, projection: str, number: int, event_at: float, applied_at: float) -> None:
        """Remember the time of the last event applied, and when that was. What is older changes nothing."""
        ...

    async def retire(self, projection: str, number: int) -> bool:
        """Give up one that is being built, or let one that was to be kept go: it is retired and may go at once. False
        when there is none, or it is live."""
        ...

    async def condemn(self, tx: Transaction, projection: str, number: int) -> Sequence[str] | None:
        """The tables of a retired one, which is locked until `tx` ends, so that they can go; None when it is not retired, or
        not there. From here on `tx` waits for a lock a moment only, and then StoreUnavailable: nobody waits for a reader of
        these tables, and no reader behind us."""
        ...

    async def remove(self, projection: str, number: int, consumer: str, limit: int) -> bool:
        """Forget one that is retired, or that was lost with a server, with all that its consumer group has seen and holds, at
        most `limit` rows of a kind at a time. True when nothing is left."""
        ...

    async def extent(self, aggregates: Sequence[str]) -> int:
        """How many events all streams of these aggregates have."""
        ...

    async def cover(self, generation: Generation, aggregates: Sequence[str]) -> bool:
        """Settle for every stream of these aggregates up to which version it is read in bulk: the one that it has now. Its
        phase is `closing` from then on; in one transaction. False, and no effect, when it is not being built by its owner, or
        stands elsewhere."""
        ...

    async def covered(
        self, tx: Transaction, projection: str, number: int, streams: Sequence[StreamKey]
    ) -> Mapping[StreamKey, int]:
        """Up to which version each of these streams is read in bulk; one that is not named had no events then."""
        ...

    async def turn_to(self, tx: Transaction, tenant: str) -> None:
        """From here on the transaction sees and writes the rows of this tenant. A store that is not isolated has nothing
        to do."""
        ...

"""Aggregate: a thing whose state is the sum of its facts. Appending a fact to its stream also publishes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from posthouse.contracts import EventType, event_type_for
from posthouse.contracts.personal import personal_fields
from posthouse.errors import (
    ConfigurationError,
    ContractError,
    StoreCollision,
    StoreError,
    StreamDeleted,
    VersionConflict,
    did_you_mean,
)
from posthouse.events import UNNAMED, Actor, Event
from posthouse.processes.stream.conflicts import Conflicts
from posthouse.processes.stream.deciding import Decision, Evolve, decided, folded
from posthouse.processes.stream.reading import STREAM_VERSION, Reader
from posthouse.processes.stream.snapshots import Snapshots
from posthouse.seam.intent import fitted
from posthouse.sending import Tx
from posthouse.store.streams import Stream, StreamEvent, StreamHead

log = logging.getLogger("posthouse.streams")

S = TypeVar("S")
E = TypeVar("E")

Expected = int | Literal["any", "new", "again"]
"""The version that a stream must be at: a number, `new` where it must not exist yet, `any` where it does not matter, `again`
where it was deleted and is to begin again, behind the version that it had."""

PAGE = 2_000
"""So many events are read at once."""


class Begin(Protocol):
    """Opens a transaction of the service."""

    def __call__(
        self, tenant: str, *, correlation: str | None, actor: Actor | None, traceparent: str | None
    ) -> AbstractAsyncContextManager[Tx]: ...


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """A state, and the version of the stream that it is the sum of; 0 when nothing has happened yet."""

    state: S
    version: int


class Aggregate(Generic[S, E]):
    """All things of one kind, each with a stream of its own, by the key of its events.

    `initial` makes the state of a thing to which nothing has happened, `evolve` says what a state becomes by an event, and
    a decision what happens to a state: three functions that look at nothing but their arguments. An event is appended to
    its stream and published in the same transaction, with its version in the extension `streamversion`.
    """

    def __init__(
        self,
        name: str,
        begin: Begin,
        *,
        initial: Callable[[], S],
        evolve: Evolve[S, E],
        events: Sequence[EventType[object]],
        reader: Reader[E],
        snapshots: Snapshots[S] | None,
        conflicts: Conflicts,
        deletion: Decision[S, E] | None = None,
        last: EventType[object] | None = None,
    ) -> None:
        self.name = name
        self.initial = initial
        self.evolve = evolve
        self.events = events
        """The types of its events, all with a key and in one topic."""
        self.deletion = deletion
        """What is said last of one that is deleted; None where none may be."""
        self.last = last
        """The type of that."""
        self._begin = begin
        self._reader = reader
        self._snapshots = snapshots
        self._personal = any(personal_fields(known.payload.cls) for known in events)
        self._conflicts = conflicts

    async def load(self, tx: Tx, id: str, *, hold: bool = False) -> Loaded[S]:
        """The state of a thing, and its version. `hold`: nobody else appends to its stream until the transaction ends; one
        that does not exist yet cannot be held. StreamDeleted when it was deleted; one that is archived is read as ever."""
        stream = self._stream(tx, id)
        if hold:
            await tx.store.streams.version(tx.transaction, stream, hold=True)
        known = await self._from_snapshot(tx, stream)
        state, version = known.state, known.version
        async for row, event in self._read(tx, stream, version):
            state, version = self._evolved(state, row, event), row.version
        return Loaded(state, version)

    async def archive(self, tx: Tx, id: str) -> bool:
        """Put the events of a thing out of the way of the others. It reads as before, rebuilds include it, and it takes no
        events until it is restored. False when it is archived, or there is none. StreamDeleted when it was deleted."""
        stream = self._stream(tx, id)
        with tx.working():
            head = await tx.store.streams.head(tx.transaction, stream, hold=True)
            if head is None or head.state == "archived":
                return False
            self._refuse_deleted(stream, head)
            await tx.store.streams.archive(tx.transaction, stream)
        return True

    async def restore(self, tx: Tx, id: str) -> bool:
        """Let a thing that was archived take events again. False when it is not archived. StreamDeleted when it was deleted."""
        stream = self._stream(tx, id)
        with tx.working():
            head = await tx.store.streams.head(tx.transaction, stream, hold=True)
            if head is None or head.state == "open":
                return False
            self._refuse_deleted(stream, head)
            await tx.store.streams.reopen(tx.transaction, stream)
        return True

    async def delete(self, tx: Tx, id: str) -> bool:
        """Say the last fact of a thing, as `delete=` decides it, and delete all others with its snapshot. What was published
        stays published; who reads it hears the last fact. False when it was deleted, or there is none. What the decision raises is raised, and
        nothing was written."""
        if self.deletion is None:
            raise ConfigurationError(
                f"aggregate {self.name!r} says nothing of deletion, so nobody who reads its events would hear of one: declare it "
                "with delete=, a decision that returns the last fact"
            )
        stream, streams = self._stream(tx, id), tx.store.streams
        head = await streams.head(tx.transaction, stream, hold=True)
        if head is None or head.state == "deleted":
            return False
        loaded = await self.load(tx, id)
        last = decided(self.deletion, loaded.state)
        if [event_type_for(event) for event in last] != [self.last]:
            raise ContractError(
                f"{stream}: what deletes it says one {'' if self.last is None else self.last.name}, not {last!r}"
            )
        self._refuse_strangers(stream, last)
        with tx.working():
            if head.state == "archived":
                await streams.reopen(tx.transaction, stream)
            await self._write(tx, stream, last, loaded.version)
            await streams.delete(tx.transaction, stream)
        return True

    async def history(self, tx: Tx, id: str, *, after: int = 0) -> list[Event[E]]:
        """The events of a thing behind a version, in order, old ones lifted to the versions of today; archived ones too.
        StreamDeleted when it was deleted."""
        stream = self._stream(tx, id)
        head = await tx.store.streams.head(tx.transaction, stream)
        self._refuse_deleted(stream, head)
        return [event async for _, event in self._read(tx, stream, after if head is None else max(after, head.base))]

    async def append(self, tx: Tx, id: str, events: Sequence[E], *, expected: Expected) -> int:
        """Append events and publish them, in this transaction; the version that the stream has then. VersionConflict when
        it is not at the one expected, StreamArchived or StreamDeleted when it takes none: nothing was written, and the
        transaction can be used further. ContractError when an event is of another thing, or of a type that was not declared for this aggregate."""
        stream = self._stream(tx, id)
        self._refuse_strangers(stream, events)
        before = await self._append(tx, stream, events, expected)
        after = before + len(events)
        if self._keeps(tx) and self._snapshots is not None and self._snapshots.due(before, after):
            await self._keep(tx, stream, await self.load(tx, id))
        return after

    async def decide(self, tx: Tx, id: str, decision: Decision[S, E], *, hold: bool = False) -> S:
        """Load a thing, decide, and append and publish what happened; the state that it has then. VersionConflict when
        somebody else was faster: in a handler, the whole transaction is then run again. What the decision raises is raised,
        and nothing was written. `hold` as in `load`."""
        loaded = await self.load(tx, id, hold=hold)
        events = decided(decision, loaded.state)
        if not events:
            return loaded.state
        stream = self._stream(tx, id)
        self._refuse_strangers(stream, events)
        await self._append(tx, stream, events, loaded.version)
        now = Loaded(folded(self.evolve, loaded.state, events), loaded.version + len(events))
        if self._keeps(tx) and self._snapshots is not None and self._snapshots.due(loaded.version, now.version):
            await self._keep(tx, stream, now)
        return now.state

    async def execute(
        self,
        id: str,
        decision: Decision[S, E],
        *,
        tenant: str = UNNAMED,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> S:
        """`decide` in a transaction of its own. Where somebody else was faster it loads and decides again, as `conflicts`
        says, and from the second time on holds the stream, so that nobody can be faster again; VersionConflict once the
        attempts are spent. After CommitUnknown it may have happened or not: load and look before you try again."""
        for attempt in range(1, self._conflicts.attempts + 1):
            try:
                async with self._begin(tenant, correlation=correlation, actor=actor, traceparent=traceparent) as tx:
                    return await self.decide(tx, id, decision, hold=attempt > 1)
            except (VersionConflict, StoreCollision) as error:
                if attempt == self._conflicts.attempts:
                    raise
                log.info("%s: attempt %d: %s", self.name, attempt, error)
            await asyncio.sleep(self._conflicts.pause(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _stream(self, tx: Tx, id: str) -> Stream:
        if not id:
            raise ConfigurationError(f"a stream of {self.name} needs an id: the key of its events")
        return Stream(tx.tenant, self.name, id)

    async def _read(self, tx: Tx, stream: Stream, after: int) -> AsyncIterator[tuple[StreamEvent, Event[E]]]:
        reader, sealed = self._reader, bool(tx.seam.before_handler)
        while True:
            rows = await tx.store.streams.read(tx.transaction, stream, after=after, limit=PAGE)
            for row in rows:
                odd = row.version != after + 1 or (after > 0 and self._may_be_last(row))
                begun_again = odd and await self._is_before(tx, stream, row, after)
                after = row.version
                if begun_again:
                    continue
                yield row, await reader.open(tx.seam, row) if sealed else reader.read(row)
            if len(rows) < PAGE:
                return

    async def _is_before(self, tx: Tx, stream: Stream, row: StreamEvent, after: int) -> bool:
        """Whether a row is the last fact of what was deleted, before a thing was begun again: it is no part of what that is.
        StreamDeleted when it was not begun again, or is deleted while it is read."""
        head = await tx.store.streams.head(tx.transaction, stream)
        self._refuse_deleted(stream, head)
        if head is not None and after == 0 and row.version <= head.base:
            return True
        if head is not None and head.base > after:
            raise StreamDeleted(str(stream), head.base)
        if row.version == after + 1:
            return False
        raise StoreError(
            f"{stream}: version {after + 1} is missing, and {row.version} is there: restore it from a backup"
        )

    def _may_be_last(self, row: StreamEvent) -> bool:
        """Whether a row is of the kind that is said last, in whichever version: what was read before it may have been deleted."""
        return self.last is not None and _kind(row.type) == _kind(self.last.name)

    def _refuse_deleted(self, stream: Stream, head: StreamHead | None) -> None:
        if head is not None and head.state == "deleted":
            raise StreamDeleted(str(stream), head.version)

    def _evolved(self, state: S, row: StreamEvent, event: Event[E]) -> S:
        try:
            return self.evolve(state, event.data)
        except Exception as error:
            error.add_note(f"while {row.name} was loaded, at version {row.version}, {row.type}")
            raise

    async def _append(self, tx: Tx, stream: Stream, events: Sequence[E], expected: Expected) -> int:
        """To the stream and to what is said, both or none; the version before."""
        with tx.working():
            return await self._write(tx, stream, events, expected)

    async def _write(self, tx: Tx, stream: Stream, events: Sequence[E], expected: Expected) -> int:
        """The version before. Whoever expects `any` asks for the version, and again should it be a new stream that somebody
        else makes at this moment: from then on it can be held."""
        while True:
            if expected == "again":
                before = await self._reopen(tx, stream)
            elif expected == "any":
                before = await tx.store.streams.version(tx.transaction, stream, hold=True)
            else:
                before = 0 if expected == "new" else expected
            facts = [
                await tx.build(
                    event,
                    {STREAM_VERSION: str(version)},
                    intent=fitted(event_type_for(event).scope, f"{stream.id}:{version}"),
                )
                for version, event in enumerate(events, before + 1)
            ]
            rows = [
                StreamEvent(
                    stream.tenant, stream.aggregate, stream.id, version, fact[0].event_id,
                    event_type_for(event).name, fact[0].headers, fact[0].body,
                )
                for version, (event, fact) in enumerate(zip(events, facts, strict=True), before + 1)
            ]  # fmt: skip
            try:
                await tx.store.streams.append(tx.transaction, rows)
            except VersionConflict:
                if expected == "any" and before == 0:
                    continue
                raise
            tx.append(row for fact in facts for row in fact)
            return before

    async def _reopen(self, tx: Tx, stream: Stream) -> int:
        """The version of a stream that was deleted and takes events again."""
        head = await tx.store.streams.head(tx.transaction, stream, hold=True)
        if head is None or head.state != "deleted":
            raise ContractError(f"{stream} was not deleted, so that it cannot begin again: say another expected=…")
        await tx.store.streams.reopen(tx.transaction, stream)
        return head.version

    def _refuse_strangers(self, stream: Stream, events: Sequence[E]) -> None:
        known = {event_type.name: event_type for event_type in self.events}
        for event in events:
            name = event_type_for(event).name
            if name not in known:
                raise ContractError(
                    f"{stream}: {name} is none of its events: add it to events=….{did_you_mean(name, known)}"
                )
            key = known[name].key_of(event)
            if key != stream.id:
                raise ContractError(f"{stream}: this {name} has the key {key!r}, so it belongs to another stream")

    def _keeps(self, tx: Tx) -> bool:
        """Where personal fields are encrypted there are no snapshots of what they come to: these would be plain, and stay when the
        person is erased."""
        return not (self._personal and tx.seam.encrypt is not None)

    async def _from_snapshot(self, tx: Tx, stream: Stream) -> Loaded[S]:
        if self._keeps(tx) and self._snapshots is not None:
            kept = await tx.store.streams.snapshot(tx.transaction, stream)
            state = None if kept is None else self._snapshots.state(kept)
            if kept is not None and state is not None:
                return Loaded(state, kept.version)
        return Loaded(self.initial(), 0)

    async def _keep(self, tx: Tx, stream: Stream, loaded: Loaded[S]) -> None:
        snapshot = None if self._snapshots is None else self._snapshots.taken(loaded.state, loaded.version)
        if snapshot is not None:
            await tx.store.streams.keep(tx.transaction, stream, snapshot)


def _kind(name: str) -> str:
    """The name of an event without its version."""
    return name.rpartition(".")[0]

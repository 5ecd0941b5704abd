"""HeldEvents: what an operator may do with held events."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from posthouse.contracts.boxes import comparable, kept
from posthouse.errors import ChangedSince, DeskError, EventError
from posthouse.events import Event, codec_of, decode_any
from posthouse.operators import OperatorsLog, changes_aside, operator_name, refuse_changed
from posthouse.receiving.holding import Holder, held_events
from posthouse.receiving.place import place_of, unlike
from posthouse.seam.seals import SEAL, Arrival, Seals
from posthouse.store import BLOCKING, Action, HeldEvent, HeldFilter, KeyPosition, Store, Transaction
from posthouse.store.actions import Changes

HeldVerb = Literal["replay", "edit"]

MOST_MISSING = 1_000
"""A gap of more numbers than this is a new beginning rather than a loss."""

Check = Callable[[str, bytes], None]
"""Given a subject and payload bytes: raises ContractError when they do not fit."""


PersonalFields = Callable[[str], Sequence[str]]
"""Given a subject: the fields of its payload that say something about a person."""


Guard = Callable[[HeldVerb, HeldEvent, str], Awaitable[None]]
"""Given a verb, the event and who asks: raises GrantNeeded where they may not."""


@dataclasses.dataclass(frozen=True)
class HeldEvents:
    """The verbs. Each is one transaction, in which it is noted who asked (`by`; whoever runs this process, unless given) and
    `why`; running consumers notice within a second."""

    store: Store
    service: str = ""
    """Whose they are, in the operators' log."""
    personal: PersonalFields = lambda _: ()
    """Of these fields the log says that they were edited, and nothing of what they were and are."""
    guard: Guard | None = None
    """Asked before an event runs again because somebody says so; None: anybody may."""
    sealed: Callable[[Event[bytes]], Awaitable[Event[bytes]]] | None = None
    """Encrypts what is secret in an event that was edited."""
    seals: Seals | None = None
    """What an edited event is sealed with."""

    def find(self, wanted: HeldFilter) -> AsyncIterator[HeldEvent]:
        """Every held event that fits, oldest first."""
        return held_events(self.store, wanted)

    async def get(self, held_id: int) -> HeldEvent:
        """One held event by its number; DeskError when there is none."""
        found = await self.store.held.find(HeldFilter(ids=[held_id]), limit=1)
        if not found:
            raise DeskError(f"no held event has the number {held_id}: see `posthouse held list TARGET`")
        return found[0]

    async def first(self, held_id: int) -> HeldEvent:
        """What the key of an event waits for: the first that is held of it, perhaps itself."""
        return await self._first_of_line(await self.get(held_id))

    async def retry(self, held_id: int, *, force: bool = False, by: str = "", why: str = "") -> HeldEvent:
        """Run it again, with all its attempts. `force` runs an event that its key has already left behind, out of order."""
        await self._guarded("replay", held_id, by)
        async with self.store.begin() as tx:
            held = await self._locked(tx, held_id)
            if held.state in ("blocked", "gap"):
                raise DeskError(await self._waits(held, "retry or skip that one, or release the key"))
            again = await self._run_again(tx, held, force, by)
            await self._note(tx, Action(verb="held retry", by=by, why=why), held, state_of(held, again))
            return again

    async def skip(self, held_id: int, *, by: str = "", why: str = "") -> HeldEvent:
        """Give it up: its key goes on without it."""
        return await self._set_aside(held_id, "skipped", Action(verb="held skip", by=by, why=why))

    async def quarantine(self, held_id: int, *, by: str = "", why: str = "") -> HeldEvent:
        """Set it aside for inspection: its key goes on without it, and it never runs by itself."""
        return await self._set_aside(held_id, "quarantined", Action(verb="held quarantine", by=by, why=why))

    async def edit(
        self, held_id: int, data: bytes, check: Check, *, force: bool = False, by: str = "", why: str = ""
    ) -> HeldEvent:
        """Replace its payload, keep its id and its place, and run it again; `force` as in `retry`. The fields that changed are
        noted, as they were and as they are. `⟨withheld 1⟩`, which stands for an encrypted value, keeps it as it is."""
        await self._guarded("edit", held_id, by)
        async with self.store.begin() as tx:
            held = await self._locked(tx, held_id)
            if held.state in ("blocked", "gap"):
                raise DeskError(await self._waits(held, "it can be edited when its turn has come"))
            event = decode_any(held.headers, held.body)
            data = kept(event.data, data)
            check(event.type, data)
            edited_event = event.with_data(data)
            if self.sealed is not None:
                edited_event = await self.sealed(edited_event)
            edited_event = self._resealed(held, event, edited_event, by)
            encoded = codec_of(held.headers, held.body).encode(edited_event)
            edited = msgspec.structs.replace(held, headers={**held.headers, **encoded.headers}, body=encoded.body)
            again = await self._run_again(tx, edited, force, by)
            fields = await changes_aside(
                comparable(event.data), comparable(edited_event.data), self.personal(event.type)
            )
            await self._note(tx, Action(verb="held edit", by=by, why=why), held, {**state_of(held, again), **fields})
            return again

    def _resealed(self, held: HeldEvent, event: Event[bytes], edited: Event[bytes], by: str) -> Event[bytes]:
        """An edited event with the seal of whoever edits it, where it has one. DeskError where he has no key."""
        if SEAL not in event.extensions:
            return edited
        if self.seals is None:
            raise DeskError(
                "this event is signed, and an edit needs a signature of its own: say POSTHOUSE_SIGNING here, with a key for edits"
            )
        if not _is_as_signed(self.seals, held, event):
            raise DeskError(
                "it is not as it was signed, and an edit would make all of it true: skip it, and let its producer say it again"
            )
        try:
            return self.seals.reseal(
                held.entry.topic, edited, by or operator_name(), place_of(held, edited, loose=True)
            )
        except EventError as error:
            raise DeskError(str(error)) from error

    def _sealed_alone(self, held: HeldEvent, alone: HeldEvent, by: str) -> HeldEvent:
        """An event that is to run without its number, with a seal for that. One that is not as it was signed gets none: whoever runs
        it refuses it. DeskError where one is asked for and there is no key."""
        try:
            event = decode_any(held.headers, held.body)
        except EventError:
            return alone
        if self.seals is None or SEAL not in event.extensions or not _is_as_signed(self.seals, held, event):
            return alone
        try:
            sealed = self.seals.reseal(
                held.entry.topic, event, by or operator_name(), place_of(alone, event, loose=True)
            )
        except EventError as error:
            if self.seals.asks(Arrival(held.entry.topic, held.first_at)):
                raise DeskError(str(error)) from error
            return alone
        encoded = codec_of(held.headers, held.body).encode(sealed)
        return msgspec.structs.replace(alone, headers={**held.headers, **encoded.headers}, body=encoded.body)

    async def release(
        self,
        held_id: int,
        *,
        first_seen: tuple[int, int] | None = None,
        force: bool = False,
        by: str = "",
        why: str = "",
    ) -> HeldEvent:
        """Let the key of this event go on: a dead first event runs again, missing numbers are given up. Very many are given up
        by `force` only: an event that lies about its number would have every true one after it set aside. `first_seen`: number and
        turn of the event that was seen as the first of its key; ChangedSince when another one is, as it is the one that is dealt with."""
        if self.guard is not None:  # it is the first of its key that runs, and that may be of another type, or older
            guarded = await self.first(held_id)
            await self.guard("replay", guarded, by)
            first_seen = first_seen or (guarded.id, guarded.turn)
        async with self.store.begin() as tx:
            first = await self._first_of_line(await self._locked(tx, held_id))
            if first_seen not in (None, (first.id, first.turn)):
                raise ChangedSince(
                    f"the first of the key of held event {held_id} is not as it was when you looked, and nothing was done: look again"
                )
            released = Action(verb="held release", by=by, why=why)
            if first.state not in ("gap", "blocked"):
                again = await self._run_again(tx, first, force=False, by=by)
                await self._note(tx, released, first, state_of(first, again))
                return again
            head, number = await self._head(tx, first) or 0, first.entry.sequence or 1
            if number - head > MOST_MISSING and not force:
                raise DeskError(
                    f"the key of {first.id} has come to number {head:,}, and this is number {number:,}: to release it gives up "
                    f"{number - head - 1:,} numbers. If it lies about its number, quarantine it and the key goes on; if they are "
                    "truly gone, release it with --force"
                )
            await self._give_up_before(tx, first)
            await self._note(tx, released, first, {"number": (head, number - 1)})
            return first

    async def _guarded(self, verb: HeldVerb, held_id: int, by: str) -> None:
        """Before the transaction: what a grant was spent on stays spent."""
        if self.guard is not None:
            await self.guard(verb, await self.get(held_id), by)

    async def _set_aside(self, held_id: int, state: str, action: Action) -> HeldEvent:
        async with self.store.begin() as tx:
            held = await self._locked(tx, held_id)
            left = await self._leave_line(tx, held, state)
            await self._note(tx, action, held, state_of(held, left))
            return left

    async def _note(self, tx: Transaction, action: Action, held: HeldEvent, changed: Changes) -> None:
        entry = held.entry
        await OperatorsLog(self.store, self.service).note(
            tx,
            msgspec.structs.replace(
                action,
                target=f"held event {held.id}",
                consumer=held.consumer,
                topic=entry.topic,
                tenant=entry.tenant,
                key=entry.key or "",
                event_id=entry.event_id,
                changed=changed,
            ),
        )

    async def _locked(self, tx: Transaction, held_id: int) -> HeldEvent:
        """The event as it stands once nobody else can move its key: it is looked up to know its key, and again under the
        lock of that, because what is held may have changed while the lock was waited for."""
        held = await self.get(held_id)
        if held.entry.sequence is not None:
            await self._head(tx, held)
            held = await self.get(held_id)
        refuse_changed(held.turn, f"held event {held.id}")
        return held

    async def _head(self, tx: Transaction, held: HeldEvent) -> int | None:
        """How far the key of an event has come, locked; None when it has not begun."""
        known = await self.store.inbox.position_of(tx, held.consumer, held.entry)
        return known.sequence if isinstance(known, KeyPosition) else None

    async def _give_up_before(self, tx: Transaction, first: HeldEvent) -> None:
        """Skip every missing number before the first that waits; of very many, only the last are counted."""
        head = await self._head(tx, first) or 0
        last = (first.entry.sequence or 1) - 1
        missing = msgspec.structs.replace(first.entry, sequence=last)
        for number in range(max(head + 1, last - MOST_MISSING + 1), last + 1):
            missing = msgspec.structs.replace(first.entry, sequence=number)
            await self.store.inbox.advance(tx, first.consumer, missing, skipped=True)
        await self.store.held.promote(tx, first.consumer, missing)

    async def _again(self, tx: Transaction, held: HeldEvent) -> HeldEvent:
        due = msgspec.structs.replace(held, state="retrying", attempts=0, after=0.0)
        return await self._change(tx, due)

    async def _leave_line(self, tx: Transaction, held: HeldEvent, state: str) -> HeldEvent:
        if held.state == state:
            raise DeskError(f"{held.id} is {state} already")
        if held.state == "blocked" or (held.state == "gap" and state != "quarantined"):
            raise DeskError(await self._waits(held, "deal with the earlier event, or release the key"))
        left = await self._change(tx, msgspec.structs.replace(held, state=state))
        if held.state in BLOCKING and await self._is_in_turn(tx, held):
            await Holder(self.store).skip(tx, left)
        return left

    async def _is_in_turn(self, tx: Transaction, held: HeldEvent) -> bool:
        """Whether its key waits for this very event: it must not be led past numbers that are still to come."""
        number = held.entry.sequence
        return number is None or number == (await self._head(tx, held) or 0) + 1

    async def _run_again(self, tx: Transaction, held: HeldEvent, force: bool, by: str) -> HeldEvent:
        """In its place; by force, when its key went on, outside of any line."""
        if not (reached := await self._left_behind(tx, held)):
            again = await self._again(tx, held)
            if await self._left_behind(tx, held):  # a key without a head could not be locked before the change
                raise self._changed(held)
            return again
        if not force:
            raise DeskError(
                f"the key of {held.id} went on to number {reached}, this is number {held.entry.sequence}: "
                "retry it with --force to run it out of order"
            )
        return await self._out_of_line(tx, held, by)

    async def _left_behind(self, tx: Transaction, held: HeldEvent) -> int | None:
        """The number that its key has come to, when that is not before its own: it would never be its turn."""
        number = held.entry.sequence
        reached = None if number is None else await self._head(tx, held)
        return reached if number is not None and reached is not None and reached >= number else None

    async def _out_of_line(self, tx: Transaction, held: HeldEvent, by: str) -> HeldEvent:
        """A place in the line cannot be changed, so it is held anew without one; its number in the list is a new one."""
        alone = msgspec.structs.replace(
            held,
            entry=msgspec.structs.replace(held.entry, sequence=None),
            state="retrying",
            attempts=0,
            after=0.0,
            id=0,
        )
        alone = self._sealed_alone(held, alone, by)
        if not await self.store.held.remove(tx, held) or not await self.store.held.hold(tx, alone):
            raise self._changed(held)
        return alone

    async def _first_of_line(self, held: HeldEvent) -> HeldEvent:
        entry = held.entry
        if entry.sequence is None or held.state not in BLOCKING:
            return held
        line = HeldFilter(consumer=held.consumer, topic=entry.topic, tenant=entry.tenant, key=entry.key)
        waiting = [e async for e in self.find(line) if e.state in BLOCKING and e.entry.sequence is not None]
        return min(waiting, key=lambda e: e.entry.sequence or 0)

    async def _waits(self, held: HeldEvent, remedy: str) -> str:
        """For whom an event waits: one that is held, or numbers that never came."""
        first = await self._first_of_line(held)
        if first.id != held.id and first.state not in ("gap", "blocked"):
            return f"{held.id} waits behind held event {first.id}, an earlier one of its key: {remedy}"
        return f"{held.id} waits behind an event of its key that has not come ({first.reason}): {remedy}"

    async def _change(self, tx: Transaction, held: HeldEvent) -> HeldEvent:
        if not await self.store.held.change(tx, held):
            raise self._changed(held)
        return held

    def _changed(self, held: HeldEvent) -> DeskError:
        return DeskError(f"{held.id} was changed by somebody else at this moment: look again")


def _is_as_signed(seals: Seals, held: HeldEvent, event: Event[bytes]) -> bool:
    """Whether an operator has in hand what was signed, in the row that it says; when its turn is, is his to say."""
    arrival = Arrival(held.entry.topic, held.first_at, place_of(held, event, loose=True))
    return seals.is_intact(arrival, event) and not (held.type and unlike(held, event, waits=True))


def state_of(before: HeldEvent, after: HeldEvent) -> Changes:
    """How a verb changed the state."""
    return {"state": (before.state, after.state)}

"""Order and claim: which events are ours to run now. The others are held, quarantined or dropped in the same transaction."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from posthouse.errors import ConfigurationError, DecodeError, FrameRefused, Reject
from posthouse.pulse import alive
from posthouse.receiving.handler import Handler
from posthouse.receiving.holding import OUTLIVED, Holder, gap
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.order import OrderDecision, classify, is_outlived, ordering_key
from posthouse.receiving.place import beside
from posthouse.receiving.policy import Quarantine
from posthouse.seam import Failures
from posthouse.seam.current import during, handling
from posthouse.store import HeldEvent, HeldState, InboxEntry, KeyPosition, Seen, Store, Transaction

log = logging.getLogger("posthouse.consumer")

NEWER_WITHIN = 10.0
"""Seconds that an older version waits for a newer one of the same fact, when its consumer takes both from topics of
their own: the newer one says more."""

REPLAYED = "earlier events of its key are being applied again: see `posthouse jobs list TARGET`"
FORGOTTEN = "older than the inbox remembers: it may have been applied before"


class Claimed(NamedTuple):
    """What came of a claim. `events`: run their handler now. `due`: a held event is due once this is committed. `known`: they
    were applied before. `refused`: they are quarantined."""

    events: Sequence[InboundEvent]
    due: bool = False
    known: Sequence[InboundEvent] = ()
    refused: Sequence[InboundEvent] = ()

    def but_for(self, known: Sequence[InboundEvent]) -> Claimed:
        """The same, of which these turned out to have been applied before."""
        if not known:
            return self
        ours = [one for one in self.events if one not in known]
        return self._replace(events=ours, known=[*self.known, *known])


NOTHING = Claimed(())


class Hold(msgspec.Struct, frozen=True):
    """Not now: hold it in this state. `after` are seconds."""

    state: HeldState
    reason: str
    attempts: int = 0
    after: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is to be run at once, by whoever runs held events."""
        return self.state == "retrying" and not self.after


def dispose(
    decision: OrderDecision,
    inbound: InboundEvent,
    *,
    reached: int = 0,
    forgotten: bool = False,
    newer_expected: bool = False,
    replayed: bool = False,
) -> Literal["run", "drop"] | Hold | Quarantine:
    """What is done with an event that stands so in its key, which has come to number `reached`. `forgotten`: it may have been applied longer ago than the inbox
    remembers. `newer_expected`: another version of its fact is about to come. `replayed`: what comes before it is being applied again."""
    match decision:
        case OrderDecision.NEXT if forgotten:
            return Quarantine(FORGOTTEN)
        case OrderDecision.NEXT if inbound.redelivered and inbound.handler is not None:
            return Hold("retrying", "may have run before a crash", attempts=1)
        case OrderDecision.NEXT if newer_expected:
            return Hold("retrying", "a newer version of the same fact is on its way", after=NEWER_WITHIN)
        case OrderDecision.NEXT:
            return "run"
        case OrderDecision.GAP:
            return Hold("gap", gap(inbound.entry.sequence or 0, reached), after=inbound.policy.gap_deadline)
        case OrderDecision.BLOCKED:
            return Hold("blocked", REPLAYED if replayed else "an earlier event of its key is held")
        case OrderDecision.FORK:
            return Quarantine("fork: its number or its id belongs to another event")
        case OrderDecision.DUPLICATE:
            return "drop"


def in_line(events: Sequence[InboundEvent], waiting: Set[int]) -> Sequence[int]:
    """The places of events that may simply be claimed: neither those that may have to wait, nor those of their key behind
    them, or a consumer that adopts the first number it sees would begin with a later one."""
    if not waiting:
        return range(len(events))
    keys = {ordering_key(events[place].entry) for place in waiting}
    return [
        place
        for place, inbound in enumerate(events)
        if place not in waiting and ordering_key(inbound.entry) not in keys
    ]


@dataclasses.dataclass(frozen=True)
class Claimer:
    """Claims for one consumer, inside transactions that somebody else began."""

    consumer: str
    handlers: Mapping[str, Handler]
    adopts: Mapping[str, bool]
    """Per topic: whether the first number seen of a key counts as its beginning."""
    store: Store
    failures: Failures

    async def claim(self, tx: Transaction, events: Sequence[InboundEvent]) -> Claimed:
        """Which of the events are ours to run now; the others were dealt with, in this transaction."""
        if (held := events[0].held) is not None:
            return await self._claim_held(tx, events[0], held)
        unfit = {  # it cannot be read, or another version of its fact may have been applied and forgotten
            place
            for place, one in enumerate(events)
            if one.defect or (one.fact is not None and await self._is_forgotten(one))
        }
        waiting = {
            place
            for place, one in enumerate(events)
            if one.redelivered or (one.fact is not None and self._awaits_newer(one))
        }
        places = [place for place in in_line(events, waiting) if place not in unfit]
        entries = [events[place].entry for place in places]
        answers = await self.store.inbox.claim(tx, self.consumer, entries) if entries else ()
        if len(places) == len(events) and all(answers):
            return Claimed(events)
        done = {place for place, answer in zip(places, answers, strict=True) if answer}
        ours, known, refused, due = list[InboundEvent](), list[InboundEvent](), list[InboundEvent](), False
        for place, inbound in enumerate(events):
            alive()
            if place in done:
                ours.append(inbound)
            elif place in unfit:
                await self.put_away(tx, inbound, Quarantine(inbound.defect or FORGOTTEN))
                refused.append(inbound)
            else:
                claimed = await self.claim_out_of_line(tx, inbound)
                ours += claimed.events
                known += claimed.known
                refused += claimed.refused
                due = due or claimed.due
        return Claimed(ours, due, known, refused)

    async def is_next(self, tx: Transaction, inbound: InboundEvent) -> bool:
        """Whether it is an event's turn, as far as its key can tell."""
        known = await self.store.inbox.position_of(tx, self.consumer, inbound.entry)
        return self._classify(known, inbound.entry) is OrderDecision.NEXT

    async def claim_out_of_line(self, tx: Transaction, inbound: InboundEvent) -> Claimed:
        """The event is not simply the next one: see what it is."""
        entry = inbound.entry
        known = await self.store.inbox.position_of(tx, self.consumer, entry)
        decision = self._classify(known, entry)
        if isinstance(known, KeyPosition) and known.waiting is not None:
            newer = decision is OrderDecision.FORK or entry.lineage > known.lineage
            if newer and await self.holder.quarantine_outlived(tx, self.consumer, entry):
                decision = self._classify(await self.store.inbox.position_of(tx, self.consumer, entry), entry)
        if decision is OrderDecision.FORK and await self._ran_out_of_order(tx, entry):
            decision = OrderDecision.DUPLICATE
        is_next = decision is OrderDecision.NEXT
        match dispose(
            decision,
            inbound,
            reached=known.sequence if isinstance(known, KeyPosition) else 0,
            forgotten=is_next and entry.sequence is None and await self._is_forgotten(inbound),
            newer_expected=is_next and self._awaits_newer(inbound) and not await self._is_applied(tx, inbound),
            replayed=isinstance(known, KeyPosition) and bool(known.replay),
        ):
            case "run":
                if await self.store.inbox.advance(tx, self.consumer, entry):
                    return Claimed((inbound,), await self._unblock_next(tx, inbound))
            case "drop":
                self._warn_if_too_late(known, inbound)
                return Claimed((), known=(inbound,))
            case Hold() | Quarantine() as instead:
                await self.put_away(tx, inbound, instead)
                if isinstance(instead, Quarantine):
                    return Claimed((), refused=(inbound,))
                return Claimed((), due=instead.is_due)
        return NOTHING

    async def put_away(self, tx: Transaction, inbound: InboundEvent, instead: Hold | Quarantine) -> None:
        """Write that an event is not run now."""
        if isinstance(instead, Quarantine):
            held = inbound.to_held(self.consumer, "quarantined", instead.reason)
            await self.holder.quarantine(tx, held, instead.reason)
        else:
            held = inbound.to_held(
                self.consumer, instead.state, instead.reason, attempts=instead.attempts, after=instead.after
            )
            await self.store.held.hold(tx, held)

    async def _claim_held(self, tx: Transaction, inbound: InboundEvent, held: HeldEvent) -> Claimed:
        """Claim a held event whose turn has come, and take it out."""
        entry = held.entry
        if entry.sequence is not None:
            known = await self.store.inbox.position_of(tx, self.consumer, entry)
            if isinstance(known, KeyPosition) and is_outlived(entry, known):
                await self.holder.quarantine(tx, held, OUTLIVED)
                return NOTHING
            if isinstance(known, KeyPosition) and known.replay:
                return NOTHING  # what comes before it is being applied again: it is due once that is done
        if not await self.store.held.remove(tx, held):
            return NOTHING
        known_as = entry if entry.sequence is not None else await self._unknown(tx, inbound)
        if known_as is None or not await self.store.inbox.advance(tx, self.consumer, known_as):
            return NOTHING
        _refuse_in_silence(inbound, held)
        return Claimed((inbound,), await self._unblock_next(tx, inbound))

    async def _unknown(self, tx: Transaction, inbound: InboundEvent) -> InboxEntry | None:
        """As what an event that stands alone is applied; None when it was, perhaps under another name. One that is held beside another
        of the same id, and finds none there, takes it."""
        entry, event = inbound.entry, inbound.event
        if await self.store.inbox.position_of(tx, self.consumer, entry) is not None:
            return None
        if event is None or entry.event_id != beside(entry, event.id):
            return entry
        plain = msgspec.structs.replace(entry, event_id=event.id)
        known = await self.store.inbox.position_of(tx, self.consumer, plain)
        if known is None:
            return plain
        return None if isinstance(known, Seen) and known.digest == entry.digest else entry

    async def _unblock_next(self, tx: Transaction, inbound: InboundEvent) -> bool:
        return await self.holder.unblock_next(tx, self.consumer, inbound.entry, inbound.policy)

    async def _is_forgotten(self, inbound: InboundEvent) -> bool:
        """Whether an unordered event is so old that its inbox row may be gone: by the time of its storage, whatever its
        producer and the clock of this machine say. Raises Reject for an ordered one that another version of may have been
        applied and forgotten: it keeps its place in its key."""
        entry = inbound.entry
        if entry.sequence is not None and (inbound.fact is None or inbound.handler is None):
            return False
        purged_until = await self.store.inbox.purged_until(self.consumer)
        forgotten = purged_until is not None and entry.time <= purged_until
        if forgotten and entry.sequence is not None:
            raise Reject("older than the inbox remembers: it may have been applied before, in another version")
        return forgotten

    async def _ran_out_of_order(self, tx: Transaction, entry: InboxEntry) -> bool:
        """Whether it was set aside before, and an operator had it run, or is about to: it comes a second time."""
        if entry.sequence is None:
            return False
        known = await self.store.inbox.position_of(tx, self.consumer, entry.alone)
        return isinstance(known, Seen) and known.digest == entry.digest

    async def _is_applied(self, tx: Transaction, inbound: InboundEvent) -> bool:
        """Whether another version of the event's fact was applied already."""
        if inbound.fact is None:
            return False
        return await self.store.inbox.position_of(tx, self.consumer, inbound.fact.entry) is not None

    def _awaits_newer(self, inbound: InboundEvent) -> bool:
        """Whether a newer version of its fact may still come to this consumer. In one topic it came before, if at all."""
        if inbound.fact is None or not inbound.fact.newer or inbound.handler is None:
            return False
        newer = [(name, self.handlers[name]) for name in inbound.fact.newer if name in self.handlers]
        topics = {known.topic for name, handler in newer for known in handler.event_types if known.name == name}
        return bool(topics) and (topics != {inbound.entry.topic} or inbound.entry.sequence is None)

    def _warn_if_too_late(self, known: KeyPosition | Seen | None, inbound: InboundEvent) -> None:
        """A number behind its key, where the consumer joined late: applied before, or from before the number with which the
        key was begun, and then this consumer passes it over. The position does not tell which."""
        entry = inbound.entry
        if inbound.redelivered or entry.sequence is None or not self.adopts.get(entry.topic, False):
            return
        if isinstance(known, KeyPosition) and entry.sequence < known.sequence:
            with during(handling(inbound.event, self.consumer)):  # it may be one of several
                log.warning(
                    "%s: event %s is number %d of key %s in %s, which is past it: unless it came before, it came too late for a"
                    " consumer that begins with the first number it sees, and is not applied",
                    self.consumer, entry.event_id, entry.sequence, entry.key, entry.topic,
                )  # fmt: skip

    def _classify(self, known: KeyPosition | Seen | None, entry: InboxEntry) -> OrderDecision:
        return classify(known, entry, adopt=self.adopts.get(entry.topic, False))

    @cached_property
    def holder(self) -> Holder:
        return Holder(self.store, self.failures)


def _refuse_in_silence(inbound: InboundEvent, held: HeldEvent) -> None:
    """A held event that needs its handler must not pass as applied because it cannot be read or its handler is gone."""
    if inbound.refused:
        raise FrameRefused(inbound.defect)
    if inbound.defect:
        raise DecodeError("unreadable", inbound.defect)
    if inbound.handler is None and held.error:
        raise ConfigurationError(f"{held.type} failed before and has no handler in this release")

"""Selection: what a replay does with each event of its range, by what the inbox says of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from posthouse.events import PLATFORM
from posthouse.history.replay.choice import Choice
from posthouse.receiving import Executor
from posthouse.receiving.holding import held_events
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.readers import Handlers
from posthouse.store import HeldFilter, KeyPosition

Verdict = Literal["again", "missing", "applied", "held", "passed over", "forgotten", "fork", "another version"]
"""again: it was applied, and is applied once more. missing: it was not, and is applied as if it came now. The others are left out.
applied: it was applied before. held: it is held, in whatever state: whoever decides about it does so there. passed over: its handler
says so. forgotten: it stands in no order, and is so old that nobody knows whether it was applied. fork: its number belongs to another
event. another version: its fact is replayed in a newer one."""

TO_APPLY: frozenset[Verdict] = frozenset(("again", "missing"))


class _Known(NamedTuple):
    """Of a key: where it stands, and which of its events are held."""

    position: KeyPosition | None
    held: Collection[str]


class Selection:
    """Judges for one consumer. What it has learnt of a key stays as it was."""

    def __init__(self, executor: Executor, choice: Choice) -> None:
        self._executor = executor
        self._choice = choice
        self._keys: dict[tuple[str, str, str | None], _Known] = {}
        self._seen: set[int] = set()
        self._refused: dict[str, set[tuple[str, bytes]]] = {}
        """Per topic: the frames that were refused when they came, and are held."""

    async def judge(self, inbound: InboundEvent, frame: str) -> Verdict | None:
        """What becomes of it; `frame` is the id that the broker knows it by. None for one that is not of the range, or was judged
        before."""
        if not self._choice.takes(inbound):
            return None
        entry = inbound.entry
        place = hash((entry.topic, entry.tenant, entry.event_id, entry.digest))
        if place in self._seen:
            return None
        self._seen.add(place)
        if await self._was_refused(inbound, frame):
            return "held"
        verdict = await (self._alone(inbound) if entry.sequence is None else self._in_line(inbound))
        if verdict not in TO_APPLY or not self._choice.reprocess:
            return "applied" if verdict == "again" else verdict
        if inbound.handler is not None and inbound.handler.replay == "skip":
            return "passed over"
        if inbound.fact is not None and any(name in self._executor.handlers for name in inbound.fact.newer):
            return "another version"
        return verdict

    async def _was_refused(self, inbound: InboundEvent, frame: str) -> bool:
        """Whether this very frame lies in quarantine: whatever its source or the keys say by now, a person decides about it there."""
        entry, store = inbound.entry, self._executor.store
        if entry.topic not in self._refused:
            held = HeldFilter(consumer=self._executor.consumer, topic=entry.topic, tenant=PLATFORM)
            self._refused[entry.topic] = {
                (one.entry.event_id, one.entry.digest) async for one in held_events(store, held) if not one.type
            }
        names = (frame, entry.event_id, entry.digest.hex())
        return any((name, entry.digest) in self._refused[entry.topic] for name in names)

    async def _in_line(self, inbound: InboundEvent) -> Verdict:
        entry, number = inbound.entry, inbound.entry.sequence or 0
        position, held = await self._of_key(inbound)
        if entry.event_id in held:
            return "held"
        if position is None or number > position.sequence:
            return "missing"
        return "again" if position.has_passed(entry.lineage, number) else "fork"

    async def _alone(self, inbound: InboundEvent) -> Verdict:
        entry, store, consumer = inbound.entry, self._executor.store, self._executor.consumer
        same = HeldFilter(consumer=consumer, tenant=entry.tenant, event_id=entry.event_id)
        if await store.held.find(same, limit=1):
            return "held"
        async with store.begin() as tx:
            if await store.inbox.position_of(tx, consumer, entry) is not None:
                return "again"
        until = await store.inbox.purged_until(consumer)
        if until is None or entry.time > until:
            return "missing"
        return "again" if self._choice.reprocess else "forgotten"

    async def _of_key(self, inbound: InboundEvent) -> _Known:
        entry, store, consumer = inbound.entry, self._executor.store, self._executor.consumer
        place = (entry.topic, entry.tenant, entry.key)
        if place not in self._keys:
            async with store.begin() as tx:
                known = await store.inbox.position_of(tx, consumer, entry)
            line = HeldFilter(consumer=consumer, topic=entry.topic, tenant=entry.tenant, key=entry.key)
            held = {one.entry.event_id async for one in held_events(store, line)}
            self._keys[place] = _Known(known if isinstance(known, KeyPosition) else None, held)
        return self._keys[place]


def refusals(consumer: str, handlers: Handlers, kind: str | None, sagas: Collection[str]) -> list[str]:
    """Why events of this type (None: of any) cannot be applied again by a consumer."""
    if consumer in sagas:
        return [
            f"{consumer} is a saga: its past turns cannot be taken again; see `posthouse saga` for those that cannot go on"
        ]
    silent = {
        handler.name: name
        for name, handler in handlers.items()
        if kind in (None, name) and handler.calling is not None and handler.replay is None
    }
    return [
        f"{name} calls the outside for each {subject}, and does not say what a replay does to it: "
        'write replay="without_calls", "skip" or "apply" beside calling=…'
        for name, subject in silent.items()
    ]

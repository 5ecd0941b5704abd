"""Holding: what is written when an event cannot be applied now."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import AsyncIterator, Mapping

import msgspec

from posthouse.events import decode_any, timestamp
from posthouse.pulse import alive
from posthouse.receiving.fingerprint import fingerprint, reason_word
from posthouse.receiving.order import is_outlived
from posthouse.receiving.place import beside
from posthouse.receiving.policy import DEFAULT, Policy
from posthouse.seam import Failure, Failures, current
from posthouse.seam.failures import users_part
from posthouse.seam.frames import DEAD_LETTERS
from posthouse.seam.masking import READ, Mask
from posthouse.store import (
    HeldEvent,
    HeldFilter,
    HeldState,
    InboxEntry,
    KeyPosition,
    OutboxRow,
    Seen,
    Store,
    Transaction,
)
from posthouse.store.sagas import STOP_WAITING, SagaRef, timer_name, waited_for

OUTLIVED = "fork: it was lost with its server, whose successor has given its number to another event"
OUT_OF_LINE: tuple[HeldState, ...] = ("quarantined", "skipped")
"""They keep nobody of their key waiting."""

HEADER_LIMIT = 2_000
"""Characters of one part of a dead letter's story."""
CARRIED, CARRIED_BYTES = 48, 32 * 1024
"""How many of the event's own headers a dead letter carries along, and their bytes: so many that with the story every broker
takes it. What is held has all of them."""
STACK_LIMIT = 8_000
"""Characters of a traceback that are kept: the end tells more than the beginning."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """Writes held events and their dead letters, inside transactions that somebody else began."""

    store: Store
    failures: Failures = dataclasses.field(default_factory=Failures)

    async def dead_letter(self, transaction: Transaction, held: HeldEvent, reason: str, policy: Policy) -> bool:
        """No further run. The key stops behind it or goes on, as the policy says; a copy goes to the dead letters. False when
        it is not held any more, in its turn."""
        state: HeldState = "dead" if policy.on_dead == "stop" else "skipped"
        buried = msgspec.structs.replace(held, state=state, reason=reason)
        if not await self.put(transaction, buried):
            return False
        if state == "skipped":
            await self.skip(transaction, buried, policy)
        await self._publish_dead(transaction, buried)
        return True

    async def quarantine(
        self, transaction: Transaction, held: HeldEvent, reason: str, error: Exception | None = None
    ) -> bool:
        """Out of line, for people to look at: it never runs by itself and keeps nobody waiting. False when it is not held any
        more, in its turn, or was quarantined before."""
        word = held.fingerprint or reason_word(reason, read=bool(held.type))
        aside = msgspec.structs.replace(held, state="quarantined", reason=reason, fingerprint=word)
        if not await self.put(transaction, aside):
            if held.id or await self._is_held(transaction, held):
                return False
            aside = _beside(aside)
            if not await self.put(transaction, aside):
                return False
        self.failures.report(_quarantined(aside, error))
        await self._publish_dead(transaction, aside)
        return True

    async def _is_held(self, transaction: Transaction, held: HeldEvent) -> bool:
        """Whether these very bytes are held under their id, and not others: one id may stand for several."""
        entry = held.entry
        known = await self.store.inbox.position_of(transaction, held.consumer, entry)
        if isinstance(known, Seen) and known.digest == entry.digest:
            return True
        same = HeldFilter(consumer=held.consumer, tenant=entry.tenant, event_id=entry.event_id)
        return any(other.entry.digest == entry.digest for other in await self.store.held.find(same))

    async def leave_out(self, transaction: Transaction, consumer: str, entry: InboxEntry, policy: Policy) -> None:
        """Nothing that is held has this number any more, and its key waits for it: the first of those that were blocked behind it
        waits for a missing number from now on, so that somebody is told."""
        if entry.sequence is None:
            return
        known = await self.store.inbox.position_of(transaction, consumer, entry)
        if isinstance(known, KeyPosition) and known.waiting is not None and known.waiting > known.sequence + 1:
            await self._await_missing(transaction, consumer, entry, known.waiting, known.sequence, policy)

    async def skip(self, transaction: Transaction, held: HeldEvent, policy: Policy = DEFAULT) -> None:
        """The key goes on without this event; and so do those that wait behind it for their saga."""
        if held.entry.sequence is not None:
            await self.store.inbox.advance(transaction, held.consumer, held.entry, counted=False)
        await self.unblock_next(transaction, held.consumer, held.entry, policy)
        if (saga := waited_for(held)) is not None:
            await self._look_again(transaction, held.entry.tenant, saga)

    async def _look_again(self, transaction: Transaction, tenant: str, of: SagaRef) -> None:
        """The saga that an event waited for is to see that this one is gone. Whoever has its row now may not have seen it, and
        is about to set the timer anew: so the row is waited for."""
        if await self.store.sagas.load(transaction, of.saga, tenant, of.id, attempt=of.attempt) is not None:
            await self.store.timers.hasten(transaction, tenant, timer_name(of, STOP_WAITING))

    async def unblock_next(
        self, transaction: Transaction, consumer: str, entry: InboxEntry, policy: Policy = DEFAULT
    ) -> bool:
        """`entry` is out of the way: the next of its key becomes due (True). Where that one never came, the first of
        those that were blocked waits for a missing number from now on, so that somebody is told."""
        if await self.store.held.promote(transaction, consumer, entry):
            return True
        known = await self.store.inbox.position_of(transaction, consumer, entry)
        if isinstance(known, KeyPosition) and known.waiting is not None:
            await self._await_missing(transaction, consumer, entry, known.waiting, known.sequence, policy)
        return False

    async def _await_missing(
        self, transaction: Transaction, consumer: str, entry: InboxEntry, first: int, reached: int, policy: Policy
    ) -> None:
        async for held in self._in_line(consumer, entry, "blocked"):
            if held.entry.sequence == first:
                reason = gap(first, reached)
                waits = msgspec.structs.replace(held, state="gap", reason=reason, after=policy.gap_deadline)
                await self.store.held.change(transaction, waits)
                return

    async def quarantine_outlived(self, transaction: Transaction, consumer: str, entry: InboxEntry) -> bool:
        """Whoever waits under a number that was given anew, to `entry` or to one that comes after it, makes room; whether
        somebody did."""
        made_room = False
        async for held in self._in_line(consumer, entry):
            if held.state not in OUT_OF_LINE and is_outlived(held.entry, entry):
                await self.quarantine(transaction, held, OUTLIVED)
                made_room = True
        return made_room

    def _in_line(self, consumer: str, entry: InboxEntry, state: HeldState | None = None) -> AsyncIterator[HeldEvent]:
        """What is held of the key of `entry`."""
        return held_events(
            self.store,
            HeldFilter(consumer=consumer, topic=entry.topic, tenant=entry.tenant, key=entry.key, state=state),
        )

    async def put(self, transaction: Transaction, held: HeldEvent) -> bool:
        """Hold it, or change it where it is held. False when it is held already, or not any more in its turn."""
        table = self.store.held
        return await (table.change(transaction, held) if held.id else table.hold(transaction, held))

    async def _publish_dead(self, transaction: Transaction, held: HeldEvent) -> None:
        """The same bytes to `<topic>.dlq`, with the story in headers; for tools that look there."""
        entry = held.entry
        row = OutboxRow(
            topic=dead_letter_topic(entry.topic),
            tenant=entry.tenant,
            event_id=entry.event_id,
            body=held.body,
            headers={**_carried(held.headers), **_story(held)},
            key=entry.key,
            numbered=False,
        )
        await self.store.outbox.append(transaction, [row])


async def held_events(store: Store, wanted: HeldFilter) -> AsyncIterator[HeldEvent]:
    """Every held event that fits, oldest first."""
    after = 0
    while page := await store.held.find(wanted, after=after):
        for held in page:
            alive()
            yield held
        after = page[-1].id


def _quarantined(held: HeldEvent, error: Exception | None) -> Failure:
    entry = held.entry
    return Failure(
        error=error,
        reason=held.reason,
        outcome="quarantined",
        consumer=held.consumer,
        event_type=held.type,
        event_id=entry.event_id,
        topic=entry.topic,
        tenant=entry.tenant,
        key=entry.key,
        correlation=correlation_in(held),
        attempt=held.attempts,
        command=f"posthouse held list TARGET --consumer {held.consumer} --state quarantined",
    )


def correlation_in(held: HeldEvent) -> str | None:
    """Which story a held event is part of; None where it cannot be read."""
    try:
        event = decode_any(held.headers, held.body)
    except Exception:
        return None
    return event.correlation or event.id


def _beside(held: HeldEvent) -> HeldEvent:
    """The same under its id and the digest of its bytes: another event has the id."""
    named = msgspec.structs.replace(held.entry, event_id=beside(held.entry, held.entry.event_id))
    return msgspec.structs.replace(held, entry=named)


def gap(number: int, reached: int) -> str:
    """Which numbers are missing before one that came; its key has come to `reached`."""
    if number - reached <= 2:
        return f"number {number} came, and number {number - 1} has not"
    return f"number {number} came, and numbers {reached + 1} to {number - 1} have not"


def dead_letter_topic(topic: str) -> str:
    """Where the dead letters of a topic go."""
    return f"{topic}{DEAD_LETTERS}"


def with_error(held: HeldEvent, error: BaseException) -> HeldEvent:
    """Keep the error's class, words and place, and what tells it from others; never the values of variables."""
    told = traceback.format_exception(type(error), error, users_part(error.__traceback__))
    mask = Mask(current())
    stack = mask.shown("".join(told)[-READ:], READ)[-STACK_LIMIT:]
    words = f"{type(error).__name__}: {mask.words_of(error)}"
    return msgspec.structs.replace(held, error=words, stack=stack, fingerprint=fingerprint(error))


def _story(held: HeldEvent) -> dict[str, str]:
    told = {
        "ph-consumer": held.consumer,
        "ph-topic": held.entry.topic,
        "ph-state": held.state,
        "ph-reason": held.reason,
        "ph-error": held.error,
        "ph-stack": held.stack,
        "ph-attempts": str(held.attempts),
        "ph-first-at": timestamp(held.first_at),
        "ph-last-at": timestamp(held.last_at),
    }
    return {name: _header(text) for name, text in told.items() if text}


def _carried(headers: Mapping[str, str]) -> dict[str, str]:
    """The event's own headers as far as there is room, the small ones first; `ph-cut` says how many were left out."""
    kept: set[str] = set()
    room = CARRIED_BYTES
    for name, value in sorted(headers.items(), key=lambda header: len(header[0]) + len(header[1])):
        room -= len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        if room < 0 or len(kept) == CARRIED:
            break
        kept.add(name)
    carried = {name: value for name, value in headers.items() if name in kept}
    if len(kept) < len(headers):
        carried["ph-cut"] = str(len(headers) - len(kept))
    return carried


def _header(text: str) -> str:
    """As brokers and HTTP take it: one line of printable ASCII without blanks at its ends, where a cut may leave some;
    everything else escaped as in a Python string. Cut once more behind that: an escape is longer than its sign."""
    return text[-HEADER_LIMIT:].strip().encode("unicode_escape").decode()[-HEADER_LIMIT:].strip()

"""Applying: the consumer's transaction. Claim, handler, what it says, commit; or held, with the reason."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from posthouse.broker import Delivery
from posthouse.clock import Clock, jitter
from posthouse.contracts.versions import lift
from posthouse.errors import (
    CommitUnknown,
    ConfigurationError,
    ContractError,
    DecodeError,
    Reject,
    RetryNow,
    StoreCollision,
    StoreFull,
    StoreUnavailable,
    TransactionClosed,
    ValueRefused,
    VersionConflict,
)
from posthouse.events import Event
from posthouse.pulse import alive
from posthouse.receiving.fact import Fact
from posthouse.receiving.handler import Answer, Handler
from posthouse.receiving.holding import OUTLIVED, Holder, held_event, storable, with_error, words_of
from posthouse.receiving.inbound import InboundEvent, arrived, from_held, ordering_key, under_digest
from posthouse.receiving.order import OrderDecision, classify, is_outlived
from posthouse.receiving.policy import Again, Dead, Policy, decide
from posthouse.seam import EnvelopeBuilder, SchemaGuard, VersionUsage, context_of
from posthouse.sending import Tx
from posthouse.store import HeldEvent, HeldState, InboxEntry, KeyPosition, Seen, Store, Transaction

log = logging.getLogger("posthouse.consumer")

NOTHING_KNOWN = (StoreUnavailable, StoreFull, CommitUnknown)
"""The database's trouble, not the event's: no attempt is counted, the broker delivers again, the inbox decides."""

PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Seconds before the transaction is run again after a collision; random, so that the two do not meet again."""

NEWER_WITHIN = 10.0
"""Seconds that an older version waits for a newer one of the same fact, when its consumer takes both from topics of
their own: the newer one says more."""

ENDED = "its transaction was committed before its block ended: what it did then stands, and what it said is lost"

FORGOTTEN = "older than the inbox remembers: it may have been applied before"

CALLS = 16
"""How many calls to the outside one consumer makes at once, where the store alone would allow fewer."""

T = TypeVar("T")


class Claimed(NamedTuple):
    """What came of a claim. `works`: run the handler now. `stirs`: a held event is due once this is committed."""

    works: Sequence[InboundEvent]
    stirs: bool = False


NOTHING = Claimed(())


@dataclasses.dataclass(frozen=True)
class Executor:
    """Applies events for one consumer. Returning means: committed, as applied or held or known already. What it raises
    is the database's trouble, and then nothing is known."""

    consumer: str
    handlers: Mapping[str, Handler]
    ordered: Mapping[str, bool]
    """Per topic: whether its events are applied in the order of their keys."""
    adopts: Mapping[str, bool]
    """Per topic: whether the first number seen of a key counts as its beginning."""
    store: Store
    builder: EnvelopeBuilder
    clock: Clock
    limit: int
    """Bytes of the largest body that is looked at."""
    sight: SchemaGuard = dataclasses.field(default_factory=SchemaGuard)
    """What is known about the schemas that events name."""
    version_usage: VersionUsage = dataclasses.field(default_factory=VersionUsage)
    """Where it is noted which versions were applied."""
    stirred: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when a held event has become due, so that nobody has to look for it."""

    @property
    def workers(self) -> int:
        """How many events are usefully in work at once: those that call outside wait for others, not for the store."""
        calls = any(handler.calling is not None for handler in self.handlers.values())
        return max(self.store.writers, CALLS) if calls else self.store.writers

    def read(self, delivery: Delivery) -> InboundEvent:
        """Decode the envelope; the payload stays raw until its handler runs."""
        return arrived(delivery, self.handlers, self.ordered, self.limit)

    async def apply(self, work: InboundEvent) -> None:
        """Deal with one event from the broker, in one transaction, or two when its handler fails."""
        attempts = 0
        while True:
            attempts += 1
            alive()
            try:
                calls = work.handler is not None and work.handler.calling is not None
                return await self._apply_together([work], await self._ask_first(work) if calls else ())
            except NOTHING_KNOWN:
                raise
            except Exception as error:
                answer = decide(work.policy, error, attempts)
                if isinstance(error, TransactionClosed) and await self._ended_by_commit([work], error):
                    return None
                if answer != Again(0.0):
                    return await self._hold_safely(work, error, answer, attempts)

    async def apply_group(self, works: Sequence[InboundEvent]) -> None:
        """Deal with events in one transaction without savepoints, those of one key in their order; one by one if anything
        fails. Where the store keeps tenants apart, in one transaction for each tenant."""
        if len(works) > 1 and self.store.isolated:
            for together in _by_tenant(works, lambda work: work.arrival.tenant):
                await self._apply_group(together)
        else:
            await self._apply_group(works)

    async def _apply_group(self, works: Sequence[InboundEvent]) -> None:
        if len(works) > 1:
            try:
                await self._apply_together(works)
                return
            except Exception as error:
                if isinstance(error, NOTHING_KNOWN) and not isinstance(error, StoreCollision):
                    raise
                if isinstance(error, TransactionClosed) and await self._ended_by_commit(works, error):
                    return
                log.info("%s: a group of %d is redone one by one: %s", self.consumer, len(works), words_of(error))
        for work in works:
            await self.apply(work)

    async def retry(self, held: HeldEvent) -> None:
        """Run a held event whose turn has come; its attempt is counted already."""
        work = from_held(held, self.handlers)
        if held.attempts > work.policy.max_attempts:
            async with self.store.begin() as transaction:
                await self._holder.dead_letter(transaction, held, "attempts spent", work.policy)
                return

        answer: Answer = ()

        async def steps(transaction: Transaction) -> None:
            if await self._claim_held(transaction, held):
                _refuse_in_silence(work, held)
                await self._run(transaction, [work], answer)
                await self._holder.unblock_next(transaction, self.consumer, held.arrival, work.policy)

        try:
            answer = await self._ask(work)
            await self._in_transaction(steps, work)
        except NOTHING_KNOWN:
            raise
        except Exception as error:
            await self._failed_again(held, error, work.policy)

    async def _ask_first(self, work: InboundEvent) -> Answer:
        """What the outside says to an event that is ours to run, as far as can be seen before it is claimed."""
        if work.handler is None or work.handler.calling is None or work.cautious:
            return ()
        async with self.store.begin(tenant=work.arrival.tenant) as transaction:
            known = await self.store.inbox.position_of(transaction, self.consumer, work.arrival)
        if self._classify(known, work) is not OrderDecision.NEXT:
            return ()
        return await self._ask(work)

    async def _ask(self, work: InboundEvent) -> Answer:
        """Call outside, with no transaction open."""
        if work.event is None or work.handler is None or work.handler.calling is None:
            return ()
        answer = await work.handler.ask(self._typed(work.handler, work.event))
        alive()
        return answer

    async def _apply_together(self, works: Sequence[InboundEvent], answer: Answer = ()) -> None:
        """One transaction: claim, handler, what it says."""

        async def steps(transaction: Transaction) -> bool:
            claimed = await self._claim(transaction, works)
            if claimed.works:
                await self._run(transaction, claimed.works, answer)
            return claimed.stirs

        if await self._in_transaction(steps, works[0]):  # committed: whoever runs held events may look now
            self.stirred.set()

    async def _in_transaction(self, steps: Callable[[Transaction], Awaitable[T]], work: InboundEvent) -> T:
        """Run the steps in one transaction, for the tenant of the event and in the shape that its handler wants; again, a
        few times, where another one was in the way: no fault of the event, so no attempt is counted."""
        shape, tenant = None if work.handler is None else work.handler.view, work.arrival.tenant
        for pause in PAUSES:
            alive()
            try:
                async with self.store.begin(shape, tenant=tenant, lazily=True) as transaction:
                    return await steps(transaction)
            except (StoreCollision, VersionConflict) as error:
                log.info("%s: %s", self.consumer, error)
                await asyncio.sleep(jitter(pause))
        alive()
        async with self.store.begin(shape, tenant=tenant, lazily=True) as transaction:
            return await steps(transaction)

    async def _claim(self, transaction: Transaction, works: Sequence[InboundEvent]) -> Claimed:
        """Which of the events are ours to run now; the others were dealt with, in this transaction."""
        unfit = {place for place, work in enumerate(works) if not _is_plain(work) and await self._is_unfit(work)}
        plain = [place for place in self._in_line(works) if place not in unfit]
        arrivals = [works[place].arrival for place in plain]
        answers = await self.store.inbox.claim(transaction, self.consumer, arrivals) if arrivals else ()
        if len(plain) == len(works) and all(answers):
            return Claimed(works)
        done = {place for place, answer in zip(plain, answers, strict=True) if answer}
        mine, stirs = [], False
        for place, work in enumerate(works):
            alive()
            if place in done:
                mine.append(work)
            elif place in unfit:
                await self._quarantine_unfit(transaction, work)
            else:
                claimed = await self._claim_out_of_line(transaction, work)
                mine += claimed.works
                stirs = stirs or claimed.stirs
        return Claimed(mine, stirs)

    def _in_line(self, works: Sequence[InboundEvent]) -> Sequence[int]:
        """The places of events that may simply be claimed: neither those that may have to wait, nor those of their key
        behind them, or a consumer that adopts the first number it sees would begin with a later one."""
        waiting = [work.cautious or (work.fact is not None and self._awaits(work)) for work in works]
        if not any(waiting):
            return range(len(works))
        lines = {ordering_key(work.arrival) for work, waits in zip(works, waiting, strict=True) if waits}
        return [
            place for place, work in enumerate(works) if not waiting[place] and ordering_key(work.arrival) not in lines
        ]

    async def _is_unfit(self, work: InboundEvent) -> bool:
        """Whether an event cannot be read, or another version of its fact may have been applied and forgotten."""
        return bool(work.defect) or (work.fact is not None and await self._forgotten(work))

    async def _quarantine_unfit(self, transaction: Transaction, work: InboundEvent) -> None:
        await self._quarantine(transaction, work, f"unreadable: {work.defect}" if work.defect else FORGOTTEN)

    async def _claim_out_of_line(self, transaction: Transaction, work: InboundEvent) -> Claimed:
        """The event is not simply the next one: see what it is."""
        arrival = work.arrival
        known = await self.store.inbox.position_of(transaction, self.consumer, arrival)
        standing = self._classify(known, work)
        if isinstance(known, KeyPosition) and known.waiting is not None:
            newer = standing is OrderDecision.FORK or arrival.lineage > known.lineage
            if newer and await self._holder.quarantine_outlived(transaction, self.consumer, arrival):
                standing = self._classify(await self.store.inbox.position_of(transaction, self.consumer, arrival), work)
        match standing:
            case OrderDecision.NEXT if arrival.sequence is None and await self._forgotten(work):
                await self._quarantine(transaction, work, FORGOTTEN)
            case OrderDecision.NEXT if work.cautious and work.handler is not None:
                await self._hold(transaction, work, "retrying", "may have run before a crash", attempts=1)
                return Claimed((), stirs=True)
            case OrderDecision.NEXT if self._awaits(work) and not await self._is_applied(transaction, work):
                reason = "a newer version of the same fact is on its way"
                await self._hold(transaction, work, "retrying", reason, after=NEWER_WITHIN)
            case OrderDecision.NEXT:
                if not await self.store.inbox.advance(transaction, self.consumer, arrival):
                    return NOTHING
                stirs = await self._holder.unblock_next(transaction, self.consumer, arrival, work.policy)
                return Claimed((work,), stirs)
            case OrderDecision.GAP:
                reason = f"number {arrival.sequence} came before an earlier one"
                await self._hold(transaction, work, "gap", reason, after=work.policy.gap_deadline)
            case OrderDecision.BLOCKED:
                await self._hold(transaction, work, "blocked", "an earlier event of its key is held")
            case OrderDecision.FORK:
                await self._quarantine(transaction, work, "fork: its number or its id belongs to another event")
            case OrderDecision.DUPLICATE:
                self._say_if_never_seen(known, work)
        return NOTHING

    def _say_if_never_seen(self, known: KeyPosition | Seen | None, work: InboundEvent) -> None:
        """A number behind its key, where the consumer joined late: applied before, or from before the number with which the
        key was begun, and then this consumer passes it over. The head does not tell which."""
        arrival = work.arrival
        if work.cautious or arrival.sequence is None or not self.adopts.get(arrival.topic, False):
            return
        if isinstance(known, KeyPosition) and arrival.sequence < known.sequence:
            log.warning(
                "%s: event %s is number %d of key %s in %s, which is past it: unless it came before, it came too late for a"
                " consumer that begins with the first number it sees, and is not applied",
                self.consumer, arrival.event_id, arrival.sequence, arrival.key, arrival.topic,
            )  # fmt: skip

    def _classify(self, known: KeyPosition | Seen | None, work: InboundEvent) -> OrderDecision:
        return classify(known, work.arrival, adopt=self.adopts.get(work.arrival.topic, False))

    async def _claim_held(self, transaction: Transaction, held: HeldEvent) -> bool:
        arrival = held.arrival
        if arrival.sequence is not None:
            known = await self.store.inbox.position_of(transaction, self.consumer, arrival)
            if isinstance(known, KeyPosition) and is_outlived(arrival, known):
                await self._holder.quarantine(transaction, held, OUTLIVED)
                return False
        if not await self.store.held.remove(transaction, held):
            return False
        alone = arrival.sequence is None
        if alone and await self.store.inbox.position_of(transaction, self.consumer, arrival) is not None:
            return False
        return await self.store.inbox.advance(transaction, self.consumer, arrival)

    async def _run(self, transaction: Transaction, works: Sequence[InboundEvent], answer: Answer = ()) -> None:
        """Call the one handler of these events, and write what it says."""
        handler = works[0].handler
        if handler is None:
            return
        if handler.calling is not None and not answer:
            raise RetryNow("its turn came only after nobody had been asked")
        if any(work.fact is not None for work in works):
            works = [work for work in works if work.fact is None or await self._is_first(transaction, work.fact)]
            if not works:
                return
        self._note(works)
        events = [self._typed(handler, work.event) for work in works if work.event is not None]
        groups = _by_tenant(events, lambda event: event.tenant) if handler.many else [[event] for event in events]
        calls = [(self._tx(transaction, group[0]), group if handler.many else group[0], answer) for group in groups]
        results = await handler.run(self.store, transaction, calls)
        said = [tx for tx, _, _ in calls]
        for tx, result in zip(said, results, strict=True):
            tx.publish_all(result)
        await said[0].flush(*said[1:])

    def _typed(self, handler: Handler, event: Event[bytes]) -> Event[object]:
        """The one place where a payload is decoded. Raises ContractError."""
        event_type = handler.by_name[event.type]
        self.sight.check(event_type, event)
        if event_type.provenance is not None and not event.metadata.ai_provenance:
            raise ContractError("a model made it, and its envelope does not say which: it lacks the provenance")
        data: object = event_type.payload.decode(event.data)
        steps = handler.lifts.get(event.type)
        return event.with_data(data if steps is None else lift(steps, data))

    def _note(self, works: Sequence[InboundEvent]) -> None:
        now = self.clock.now()
        for name in {work.event.type for work in works if work.event is not None}:
            self.version_usage.note("applied", self.consumer, name, now)

    async def _is_first(self, transaction: Transaction, fact: Fact) -> bool:
        """Whether no other version of the fact was applied; from here on, one was."""
        return all(await self.store.inbox.claim(transaction, self.consumer, [fact.arrival]))

    async def _is_applied(self, transaction: Transaction, work: InboundEvent) -> bool:
        """Whether another version of the event's fact was applied already."""
        if work.fact is None:
            return False
        return await self.store.inbox.position_of(transaction, self.consumer, work.fact.arrival) is not None

    def _awaits(self, work: InboundEvent) -> bool:
        """Whether a newer version of its fact may still come to this consumer. In one topic it came before, if at all."""
        if work.fact is None or not work.fact.newer or work.handler is None:
            return False
        newer = [(name, self.handlers[name]) for name in work.fact.newer if name in self.handlers]
        topics = {known.topic for name, handler in newer for known in handler.event_types if known.name == name}
        return bool(topics) and (topics != {work.arrival.topic} or work.arrival.sequence is None)

    def _tx(self, transaction: Transaction, event: Event[object]) -> Tx:
        return Tx(transaction, self.store, self.builder, context_of(event), self.clock)

    async def _forgotten(self, work: InboundEvent) -> bool:
        """Whether an unordered event is so old that its inbox row may be gone: by the time of its storage, whatever its
        producer and the clock of this machine say. Raises Reject for an ordered one that another version of may have been
        applied and forgotten: it keeps its place in the line of its key."""
        arrival = work.arrival
        if arrival.sequence is not None and (work.fact is None or work.handler is None):
            return False
        purged_until = await self.store.inbox.purged_until(self.consumer)
        forgotten = purged_until is not None and arrival.time <= purged_until
        if forgotten and arrival.sequence is not None:
            raise Reject("older than the inbox remembers: it may have been applied before, in another version")
        return forgotten

    async def _hold_safely(self, work: InboundEvent, error: Exception, answer: Again | Dead, attempts: int) -> None:
        """Hold an event that failed; under the digest of its bytes where the store cannot keep what it says of itself. Its
        neighbours are not to start over because of it."""
        alive()
        try:
            await self._hold_failed(work, error, answer, attempts)
        except ValueRefused as refused:
            nameless = under_digest(work)
            async with self.store.begin() as transaction:
                await self._quarantine(
                    transaction, nameless, f"it cannot be kept as what it says it is: {words_of(refused)}"
                )

    async def _ended_by_commit(self, works: Sequence[InboundEvent], error: Exception) -> bool:
        """Whether a handler has committed behind our back, which nothing can take back: then the claims of all stand, and
        would pass for duplicates. They are set aside, for people to look at."""
        async with self.store.begin() as transaction:
            for work in works:
                alive()
                known = await self.store.inbox.position_of(transaction, self.consumer, work.arrival)
                if self._classify(known, work) is OrderDecision.NEXT:
                    return False
            for work in works:
                alive()
                await self._holder.quarantine(
                    transaction, with_error(self._held(work, "quarantined", ENDED, attempts=1), error), ENDED
                )
        return True

    async def _hold_failed(self, work: InboundEvent, error: Exception, answer: Again | Dead, attempts: int) -> None:
        """A first run failed and was rolled back: hold the event, unless somebody dealt with it meanwhile."""
        self._report(work.arrival, error, answer, attempts)
        held = with_error(self._held(work, "retrying", words_of(error), attempts=attempts), error)
        async with self.store.begin() as transaction:
            known = await self.store.inbox.position_of(transaction, self.consumer, work.arrival)
            if self._classify(known, work) is not OrderDecision.NEXT:
                await self._claim_out_of_line(transaction, work)
            elif isinstance(answer, Dead):
                await self._holder.dead_letter(transaction, held, answer.reason, work.policy)
            else:
                later = msgspec.structs.replace(held, after=answer.seconds)
                await self.store.held.hold(transaction, later)
        self.stirred.set()

    async def _failed_again(self, held: HeldEvent, error: Exception, policy: Policy) -> None:
        answer = decide(policy, error, held.attempts)
        self._report(held.arrival, error, answer, held.attempts)
        held = msgspec.structs.replace(with_error(held, error), reason=words_of(error))
        async with self.store.begin() as transaction:
            if isinstance(answer, Dead):
                kept = await self._holder.dead_letter(transaction, held, answer.reason, policy)
            else:
                later = msgspec.structs.replace(held, after=answer.seconds)
                kept = await self.store.held.change(transaction, later)
            if not kept and isinstance(error, TransactionClosed):  # it was taken out, and that was committed
                await self._holder.quarantine(transaction, msgspec.structs.replace(held, id=0, turn=0), ENDED)

    async def _hold(
        self,
        transaction: Transaction,
        work: InboundEvent,
        state: HeldState,
        reason: str,
        *,
        attempts: int = 0,
        after: float = 0.0,
    ) -> None:
        held = self._held(work, state, reason, attempts=attempts, after=after)
        await self.store.held.hold(transaction, held)

    async def _quarantine(self, transaction: Transaction, work: InboundEvent, reason: str) -> None:
        await self._holder.quarantine(transaction, self._held(work, "quarantined", reason), reason)

    def _held(
        self, work: InboundEvent, state: HeldState, reason: str, *, attempts: int = 0, after: float = 0.0
    ) -> HeldEvent:
        return held_event(
            self.consumer,
            work.arrival,
            state=state,
            headers={storable(name): storable(value) for name, value in work.headers.items()},
            body=work.body,
            type=work.event.type if work.event is not None else "",
            reason=reason,
            attempts=attempts,
            after=after,
        )

    @property
    def _holder(self) -> Holder:
        return Holder(self.store)

    def _report(self, arrival: InboxEntry, error: Exception, answer: Again | Dead, attempts: int) -> None:
        what = f"is dead ({answer.reason})" if isinstance(answer, Dead) else f"runs again in {answer.seconds:.1f} s"
        level = logging.ERROR if isinstance(answer, Dead) else logging.WARNING
        log.log(
            level,
            "%s: event %s failed (run %d) and %s: %s",
            self.consumer,
            arrival.event_id,
            attempts,
            what,
            words_of(error),
        )


def _is_plain(work: InboundEvent) -> bool:
    """Whether an event is fit at first sight: it can be read, and was published in one version."""
    return work.fact is None and not work.defect


def _refuse_in_silence(work: InboundEvent, held: HeldEvent) -> None:
    """A held event that needs its handler must not pass as applied because it cannot be read or its handler is gone."""
    if work.defect:
        raise DecodeError("unreadable", work.defect)
    if work.handler is None and held.error:
        raise ConfigurationError(f"{held.type} failed before and has no handler in this release")


def _by_tenant(these: Sequence[T], tenant_of: Callable[[T], str]) -> list[list[T]]:
    """One list per tenant. A handler that takes a list gets these, because what it says belongs to one tenant."""
    lists: dict[str, list[T]] = {}
    for one in these:
        lists.setdefault(tenant_of(one), []).append(one)
    return list(lists.values())

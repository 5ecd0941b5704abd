"""Settle: what becomes of an event whose handler failed. It is held, dead or quarantined, in a transaction of its own."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import msgspec

from posthouse.clock import Clock
from posthouse.errors import (
    ContractsUnavailable,
    FrameRefused,
    RetryNow,
    SecretsUnavailable,
    TransactionClosed,
    ValueRefused,
)
from posthouse.pulse import alive
from posthouse.receiving.claim import Claimer, Hold
from posthouse.receiving.fingerprint import CRASH, NO_HANDLER
from posthouse.receiving.holding import with_error
from posthouse.receiving.inbound import InboundEvent, under_digest
from posthouse.receiving.policy import DEFAULT, Again, Dead, Outcome, Quarantine
from posthouse.seam import Failure, Failures
from posthouse.seam.masking import words_here
from posthouse.store import HeldEvent, Transaction

log = logging.getLogger("posthouse.consumer")

UNKNOWN = "no handler for it here: it is left to a process of the release that has one"
NOBODY_KNOWS = "no process that ran had a handler for it: run the release that has one, then retry it, or skip it"
LOOK_AROUND = 2.0
"""Seconds until the next process looks whether it knows an event that is left to others, or whether its keys are there again."""
LEFT_FOR = 3600.0
"""Seconds after which an event is dead that nobody knew."""

ENDED = "its transaction was committed before its block ended: what it did then stands, and what it said is lost"


@dataclasses.dataclass(frozen=True)
class Settler:
    """Settles failures for the consumer of `claimer`."""

    claimer: Claimer
    clock: Clock
    failures: Failures

    async def settle(self, inbound: InboundEvent, error: Exception, outcome: Outcome, attempts: int) -> None:
        """The run number `attempts` failed and was rolled back: write what follows from it."""
        alive()
        self.report(inbound, error, outcome, attempts)
        if inbound.held is not None:
            await self._settle_held(inbound, inbound.held, error, outcome)
            return
        try:
            await self._settle_new(inbound, error, outcome, attempts)
        except ValueRefused as refused:
            # The store cannot keep what it says of itself. Its neighbours are not to start over because of it.
            reason = f"it cannot be kept as what it says it is: {words_here(refused)}"
            async with self.claimer.store.begin() as tx:
                await self.claimer.put_away(tx, under_digest(inbound), Quarantine(reason))

    async def ended_by_commit(self, events: Sequence[InboundEvent], error: Exception) -> bool:
        """Whether a handler has committed behind our back, which nothing can take back: then the claims of all stand, and
        would pass for duplicates. They are quarantined, for people to look at."""
        async with self.claimer.store.begin() as tx:
            for inbound in events:
                alive()
                if await self.claimer.is_next(tx, inbound):
                    return False
            for inbound in events:
                alive()
                held = inbound.to_held(self.claimer.consumer, "quarantined", ENDED, attempts=1)
                await self.claimer.holder.quarantine(tx, with_error(held, error), ENDED, error)
        return True

    async def let_in(self, inbound: InboundEvent, held: HeldEvent) -> None:
        """Give a held event whose frame was refused when it came the place in its key that it has: it runs from there, or
        waits, or is known already."""
        async with self.claimer.store.begin() as tx:
            if not await self.claimer.store.held.remove(tx, held):
                return
            if await self.claimer.is_next(tx, inbound):
                await self.claimer.put_away(tx, inbound, Hold("retrying", "was refused when it came"))
            else:
                await self.claimer.claim_out_of_line(tx, inbound)

    async def refuse(self, inbound: InboundEvent, held: HeldEvent) -> None:
        """Set a held event aside that is not let in any more. What its row says of its key is nothing to go by where the event says
        something else: then the key that it belongs to waits for it. Otherwise the key waits or goes on, as the policy says."""
        claimer, holder, error = self.claimer, self.claimer.holder, FrameRefused(inbound.defect)
        handler = claimer.handlers.get(held.type)
        policy = DEFAULT if handler is None else handler.policy
        aside = msgspec.structs.replace(with_error(held, error), fingerprint="")
        async with claimer.store.begin() as tx:
            if not await holder.quarantine(tx, aside, inbound.defect, error):
                return
            for entry in {held.entry, inbound.belongs or held.entry}:
                if entry.key is not None:
                    await claimer.store.held.recount(tx, held.consumer, entry)
            if inbound.belongs is not None or policy.on_dead == "stop":
                await holder.leave_out(tx, held.consumer, inbound.belongs or held.entry, policy)
            elif await claimer.is_next(tx, inbound):
                await holder.skip(tx, held, policy)

    async def leave_to_others(self, inbound: InboundEvent) -> None:
        """Hold an event that only another release has a handler for, without counting a run, until a process of that has its turn;
        one that nobody knows in the end is dead."""
        held, holder = inbound.held, self.claimer.holder
        if held is None:
            log.warning("%s: %s %s has %s", self.claimer.consumer, _type(inbound), inbound.entry.event_id, UNKNOWN)
        async with self.claimer.store.begin() as tx:
            if held is None:
                if await self.claimer.is_next(tx, inbound):
                    left = inbound.to_held(self.claimer.consumer, "retrying", UNKNOWN, after=LOOK_AROUND)
                    await holder.put(tx, msgspec.structs.replace(left, fingerprint=NO_HANDLER))
            elif held.last_at - held.first_at > LEFT_FOR:
                self.report(inbound, None, Dead(NOBODY_KNOWS), held.attempts)
                await holder.dead_letter(tx, held, NOBODY_KNOWS, inbound.policy)
            else:
                runs = max(held.attempts - 1, 0)
                again = msgspec.structs.replace(
                    held, attempts=runs, reason=UNKNOWN, after=LOOK_AROUND, fingerprint=NO_HANDLER
                )
                await holder.put(tx, again)

    async def wait_for(self, inbound: InboundEvent, error: SecretsUnavailable | ContractsUnavailable) -> None:
        """Hold an event that nobody can read at the moment, without counting a run, until its keys, or its schema, may be there."""
        held, claimer, reason = inbound.held, self.claimer, words_here(error)
        log.warning("%s: %s %s waits: %s", claimer.consumer, _type(inbound), inbound.entry.event_id, reason)
        async with claimer.store.begin() as tx:
            if held is not None:
                runs = max(held.attempts - 1, 0)
                await claimer.holder.put(
                    tx, msgspec.structs.replace(held, attempts=runs, reason=reason, after=LOOK_AROUND)
                )
            elif await claimer.is_next(tx, inbound):
                await claimer.holder.put(tx, inbound.to_held(claimer.consumer, "retrying", reason, after=LOOK_AROUND))
            else:
                await claimer.claim_out_of_line(tx, msgspec.structs.replace(inbound, redelivered=True))

    async def spent(self, inbound: InboundEvent, held: HeldEvent) -> bool:
        """Whether a held event has no run left, and is dead from now on."""
        if held.attempts <= inbound.policy.max_attempts:
            return False
        self.report(inbound, None, Dead("attempts spent, the last of them in a crash"), inbound.policy.max_attempts)
        async with self.claimer.store.begin() as tx:
            crashed = msgspec.structs.replace(held, fingerprint=held.fingerprint or CRASH)
            await self.claimer.holder.dead_letter(tx, crashed, "attempts spent", inbound.policy)
        return True

    def report(self, inbound: InboundEvent, error: Exception | None, outcome: Outcome, attempts: int) -> None:
        """Tell the log and the hook of it, before it is written: rather twice than never. RetryNow is no failure, and what
        is quarantined is told by whoever writes it."""
        if isinstance(outcome, Quarantine) or (isinstance(error, RetryNow) and isinstance(outcome, Again)):
            return
        consumer, entry, policy = self.claimer.consumer, inbound.entry, inbound.policy
        dead = isinstance(outcome, Dead)
        state = "dead" if policy.on_dead == "stop" else "skipped"
        self.failures.report(
            Failure(
                error=error,
                reason=outcome.reason if isinstance(outcome, Dead) else "" if error is None else words_here(error),
                outcome="dead" if dead else "retry",
                consumer=consumer,
                handler="" if inbound.handler is None else inbound.handler.name,
                event_type=_type(inbound),
                event_id=entry.event_id,
                topic=entry.topic,
                tenant=entry.tenant,
                key=entry.key,
                attempt=attempts,
                max_attempts=policy.max_attempts,
                next_at=self.clock.now() + outcome.seconds if isinstance(outcome, Again) else None,
                command=f"posthouse held list TARGET --consumer {consumer} --state {state}" if dead else "",
            )
        )

    async def _settle_new(self, inbound: InboundEvent, error: Exception, outcome: Outcome, attempts: int) -> None:
        """Hold an event from the broker, unless somebody dealt with it meanwhile."""
        held = inbound.to_held(self.claimer.consumer, "retrying", words_here(error), attempts=attempts)
        async with self.claimer.store.begin() as tx:
            if await self.claimer.is_next(tx, inbound):
                await self._write(tx, inbound, with_error(held, error), outcome, error)
            else:  # if its turn comes only here, because those before it are set aside, it must not pass as applied
                await self.claimer.claim_out_of_line(tx, msgspec.structs.replace(inbound, redelivered=True))

    async def _settle_held(self, inbound: InboundEvent, held: HeldEvent, error: Exception, outcome: Outcome) -> None:
        held = msgspec.structs.replace(with_error(held, error), reason=words_here(error))
        async with self.claimer.store.begin() as tx:
            kept = await self._write(tx, inbound, held, outcome, error)
            if not kept and isinstance(error, TransactionClosed):  # it was taken out, and that was committed
                await self.claimer.holder.quarantine(tx, msgspec.structs.replace(held, id=0, turn=0), ENDED, error)

    async def _write(
        self, tx: Transaction, inbound: InboundEvent, held: HeldEvent, outcome: Outcome, error: Exception
    ) -> bool:
        """False when it is not held any more, in its turn."""
        holder = self.claimer.holder
        match outcome:
            case Again(seconds):
                return await holder.put(tx, msgspec.structs.replace(held, after=seconds))
            case Dead(reason):
                return await holder.dead_letter(tx, held, reason, inbound.policy)
            case Quarantine(reason):
                kept = await holder.quarantine(tx, held, reason, error)
                if kept:
                    await holder.skip(tx, held, inbound.policy)
                return kept


def _type(inbound: InboundEvent) -> str:
    return inbound.event.type if inbound.event is not None else ""

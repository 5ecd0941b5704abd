"""Applying: one event of a replay, in one transaction with the row that says it is still to be done."""

from __future__ import annotations

import dataclasses
from functools import partial

import msgspec

from posthouse.broker import Delivery, Frame
from posthouse.errors import SecretsUnavailable
from posthouse.receiving import Executor
from posthouse.receiving.collisions import despite_collisions
from posthouse.receiving.executor import NOTHING_KNOWN
from posthouse.receiving.handler import Answer
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.policy import DEFAULT
from posthouse.seam.current import Current, during, handling
from posthouse.seam.masking import words_here
from posthouse.store import InboxEntry, KeyPosition, Transaction
from posthouse.store.replays import Line, Staged

NOBODY: Answer = (None,)
"""The answer of a call that was not made."""


AWAY = (*NOTHING_KNOWN, SecretsUnavailable)
"""The trouble of the database, or of keys, not of the event: it is tried again, and no run is counted."""


class NotApplied(Exception):
    """Why an event was not applied again: the error, and what it says without what is personal."""

    def __init__(self, cause: Exception, words: str) -> None:
        super().__init__(words)
        self.cause = cause
        self.words = words


@dataclasses.dataclass(frozen=True)
class Applier:
    """Applies events for one consumer, as the owner of a job."""

    executor: Executor
    job: str
    token: int

    def decoded(self, row: Staged) -> InboundEvent:
        """As its consumer reads it: proved and within limits, as if the broker had brought it. What it shares with other versions
        was looked at when it was put aside."""
        frame = Frame(topic=row.topic, id=row.event_id, key=None, headers=row.headers, body=row.body)
        inbound = self.executor.decoder.from_delivery(Delivery(frame=frame, position=0, stored_at=row.stored_at))
        if not row.again or inbound.event is None:
            return inbound
        return msgspec.structs.replace(inbound, event=msgspec.structs.replace(inbound.event, replayed=True), fact=None)

    async def close(self, line: Line) -> bool:
        """Close a key, as this owner. False when it is not ours to close."""
        store = self.executor.store
        async with store.begin() as tx:
            return await store.replays.close(tx, self.executor.consumer, line, self.job, self.token)

    async def open(self, line: Line) -> None:
        """Open a key, if this job has closed it, and let it go on."""
        async with self.executor.store.begin() as tx:
            await self._open(tx, line)

    async def again(self, row: Staged, inbound: InboundEvent, attempt: int, *, is_last: bool) -> bool:
        """Run its handler; the `last` of its key opens that. False when somebody else has dealt with it. NotApplied when the handler
        failed, or what comes before it."""
        with during(self._here(inbound, attempt)) as here:
            try:
                opened = (await self.executor.runner.opened([inbound]))[0]
                if opened is not inbound:
                    here.become(self._here(opened, attempt))
                answer = await self._asked(opened)
                run = partial(self._transact, row, opened, answer, is_last=is_last)
                return await despite_collisions(run, self.executor.consumer)
            except AWAY:
                raise
            except Exception as error:
                raise NotApplied(error, words_here(error)) from error

    def _here(self, inbound: InboundEvent, attempt: int) -> Current:
        event, handler = inbound.event, inbound.handler
        known = None if event is None or handler is None else handler.by_name.get(event.type)
        return handling(event, self.executor.consumer, attempt, None if known is None else known.payload.cls)

    async def feed(self, row: Staged) -> bool:
        """Give it to the consumer as if it came now: the inbox decides."""
        store = self.executor.store
        await self.executor.execute([self.decoded(row)])
        async with store.begin() as tx:
            return await store.replays.take(tx, self.executor.consumer, row, None)

    async def _asked(self, inbound: InboundEvent) -> Answer:
        handler = inbound.handler
        if handler is None or handler.calling is None:
            return ()
        return NOBODY if handler.replay == "without_calls" else await self.executor.runner.ask(inbound)

    async def _transact(self, row: Staged, inbound: InboundEvent, answer: Answer, *, is_last: bool) -> bool:
        executor, handler = self.executor, inbound.handler
        view = None if handler is None else handler.view
        begun = executor.store.begin(view, tenant=row.tenant, lazily=True)
        async with executor.seam.transaction(executor.consumer, begun) as tx:
            token = self.token if row.line.ordered else None
            if not await executor.store.replays.take(tx, executor.consumer, row, token):
                return False
            await executor.runner.run(tx, [inbound], answer)
            if is_last:
                await self._open(tx, row.line)
        return True

    async def _open(self, tx: Transaction, line: Line) -> None:
        store, consumer = self.executor.store, self.executor.consumer
        if not await store.replays.open(tx, consumer, line, self.job, self.token):
            return
        place = InboxEntry(
            topic=line.topic, tenant=line.tenant, event_id="", digest=b"", time=0.0, key=line.key, sequence=1
        )
        at = await store.inbox.position_of(tx, consumer, place)
        if isinstance(at, KeyPosition):
            reached = msgspec.structs.replace(place, sequence=at.sequence, lineage=at.lineage)
            await self.executor.claimer.holder.unblock_next(tx, consumer, reached, DEFAULT)

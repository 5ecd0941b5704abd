"""Outbox: the way in for people who already have a transaction of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from posthouse.errors import ConfigurationError
from posthouse.events import Actor
from posthouse.seam.context import EventContext
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.store import OutboxRow, Store

Rows = list[OutboxRow]


class Outbox:
    """Adds events to a connection or session that somebody else began and will commit. Adding never commits.

    What can be joined is up to the store: for SQLite a `sqlite3` or `aiosqlite` connection, or a SQLAlchemy `Session`,
    `AsyncSession`, `Connection` or `AsyncConnection`.
    """

    def __init__(self, store: Callable[[], Store], builder: Callable[[], EnvelopeBuilder]) -> None:
        self._store = store
        self._builder = builder

    async def add(
        self,
        theirs: object,
        *payloads: object,
        tenant: str,
        correlation: str | None = None,
        causation: str | None = None,
        actor: Actor | None = None,
        idempotency_key: str | None = None,
    ) -> Sequence[str]:
        """Add facts to their open transaction; returns the event ids. An id that was there before comes back when the
        idempotency key was used already."""
        context = EventContext(tenant=tenant, correlation=correlation, causation=causation, actor=actor)
        store = self._store()
        facts = self._facts(payloads, context, idempotency_key)
        transaction = store.join(theirs)
        rows = await self._builder().finish(transaction, _rows(facts))
        return _firsts(await store.outbox.append(transaction, rows), facts)

    def add_now(
        self,
        theirs: object,
        *payloads: object,
        tenant: str,
        correlation: str | None = None,
        causation: str | None = None,
        actor: Actor | None = None,
        idempotency_key: str | None = None,
    ) -> Sequence[str]:
        """`add` for code without an event loop: their connection or session must be a synchronous one."""
        context = EventContext(tenant=tenant, correlation=correlation, causation=causation, actor=actor)
        if self._builder().waits:
            raise ConfigurationError(
                "what is set at the seam (quota, encrypt, claim check, sign) waits: use `await add(…)`"
            )
        facts = self._facts(payloads, context, idempotency_key)
        return _firsts(self._store().append_now(theirs, _rows(facts)), facts)

    def _facts(self, payloads: Sequence[object], context: EventContext, idempotency_key: str | None) -> list[Rows]:
        if idempotency_key is not None and len(payloads) != 1:
            raise ValueError("an idempotency key stands for one fact: add the others in a call of their own")
        builder = self._builder()
        return [builder.build(payload, context, idempotency_key=idempotency_key) for payload in payloads]


def _rows(facts: Sequence[Rows]) -> Rows:
    return [row for rows in facts for row in rows]


def _firsts(ids: Sequence[str], facts: Sequence[Rows]) -> Sequence[str]:
    """Of the ids of all rows, those of the facts as they were given: the first of its versions each."""
    found, place = [], 0
    for rows in facts:
        found.append(ids[place])
        place += len(rows)
    return found

"""Outbox: the way in for people who already have a transaction of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from posthouse.events import Actor
from posthouse.sending.draft import Cause, Drafter
from posthouse.store import OutboxRow, Store


class Outbox:
    """Adds events to a connection or session that somebody else began and will commit. Adding never commits.

    What can be joined is up to the store: for SQLite a `sqlite3` or `aiosqlite` connection, or a SQLAlchemy `Session`,
    `AsyncSession`, `Connection` or `AsyncConnection`.
    """

    def __init__(self, store: Callable[[], Store], drafter: Callable[[], Drafter]) -> None:
        self._store = store
        self._drafter = drafter

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
        cause = Cause(tenant=tenant, correlation=correlation, causation=causation, actor=actor)
        store = self._store()
        return await store.outbox.append(store.join(theirs), self._rows(payloads, cause, idempotency_key))

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
        cause = Cause(tenant=tenant, correlation=correlation, causation=causation, actor=actor)
        return self._store().append_now(theirs, self._rows(payloads, cause, idempotency_key))

    def _rows(self, payloads: Sequence[object], cause: Cause, idempotency_key: str | None) -> list[OutboxRow]:
        if idempotency_key is not None and len(payloads) != 1:
            raise ValueError("an idempotency key stands for one fact: add the others in a call of their own")
        drafter = self._drafter()
        return [drafter.draft(payload, cause, idempotency_key=idempotency_key) for payload in payloads]

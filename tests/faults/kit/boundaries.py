"""Boundaries: every place between two statements of a part, where something may be done to the server behind them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import asyncpg

from posthouse.broker import Broker, Frame, Verdict

Moment = Literal["before", "during", "after"]
Act = Callable[[], Awaitable[None]]

PUBLISH = "(publish)"
"""What a relay does between a poll and its settle, while nothing is said to the store."""

part_at_work: ContextVar[str] = ContextVar("part_at_work", default="")
"""The part of the service that a task belongs to; those that it starts inherit it."""


class Boundary(NamedTuple):
    """Before a statement of a part is sent, while it is under way, or after its answer."""

    part: str
    statement: str
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.statement!r} of {self.part}"


class Boundaries:
    """Watches the statements of this process. `between` is called at every one of them. What is done at the one that is
    armed is waited for by those who came by there, and by nobody else."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._armed: Boundary | None = None
        self._strike: Act = _nothing
        self._struck = asyncio.Event()
        self._striking: asyncio.Future[None] | None = None
        self.seen: dict[tuple[str, str], int] = {}
        """How often each statement of each part was sent."""

    def arm(self, boundary: Boundary, strike: Act) -> None:
        """Strike at the next one that is like this."""
        self._armed, self._strike = boundary, strike
        self._struck.clear()

    async def struck(self, within: float) -> bool:
        """Wait so many seconds for somebody to come by there, and for what is done then; whether it was."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._struck.wait(), within)
        if self._armed is None:
            await self._struck.wait()
        if self._struck.is_set() and self._striking is not None:
            self._striking.result()
        return self._struck.is_set()

    def disarm(self) -> None:
        """Do not strike any more."""
        self._armed = None

    def all(self, *parts: str, often: int = 1) -> list[Boundary]:
        """Every boundary of these parts that was come by so often. After one statement is not the same as before the next
        one: others may be served in between, by another run of the server."""
        return [
            Boundary(part, statement, moment)
            for (part, statement), count in self.seen.items()
            if part in parts and count >= often
            for moment in _moments(statement)
        ]

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts."""
        execute, prepared = asyncpg.Connection.execute, asyncpg.Connection._execute  # type: ignore[attr-defined]

        async def watched_execute(connection: Any, query: str, *arguments: object, timeout: float | None = None) -> Any:
            if arguments:  # comes by again, below
                return await execute(connection, query, *arguments, timeout=timeout)
            return await self.pass_by(query, lambda: execute(connection, query, timeout=timeout))

        async def watched_prepared(connection: Any, query: str, *arguments: Any, **options: Any) -> Any:
            return await self.pass_by(query, lambda: prepared(connection, query, *arguments, **options))

        asyncpg.Connection.execute = watched_execute  # type: ignore[method-assign, assignment]
        asyncpg.Connection._execute = watched_prepared  # type: ignore[attr-defined]
        try:
            yield
        finally:
            asyncpg.Connection.execute = execute  # type: ignore[method-assign]
            asyncpg.Connection._execute = prepared  # type: ignore[attr-defined]

    def watch_publish(self, broker: Broker) -> Broker:
        """Make a boundary of each publish of this broker too: it may take as long as whatever is done there."""
        publish = broker.publish

        async def watched_publish(frames: Sequence[Frame]) -> Sequence[Verdict]:
            verdicts: Sequence[Verdict] = await self.pass_by(PUBLISH, lambda: publish(frames))
            return verdicts

        broker.publish = watched_publish  # type: ignore[method-assign]
        return broker

    async def pass_by(self, sql: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """A statement on its way."""
        part = part_at_work.get()
        if not part:
            return await run()
        self._between()
        statement = short(sql)
        self.seen[part, statement] = self.seen.get((part, statement), 0) + 1
        await self._at(Boundary(part, statement, "before"))
        if self._armed == Boundary(part, statement, "during"):
            asking = asyncio.ensure_future(run())
            await asyncio.sleep(0)  # it is on its way now
            await self._at(Boundary(part, statement, "during"))
            return await asking
        answer = await run()
        await self._at(Boundary(part, statement, "after"))
        return answer

    async def _at(self, here: Boundary) -> None:
        if self._armed != here:
            return
        self._armed = None
        token = part_at_work.set("")
        try:
            self._striking = asyncio.ensure_future(self._strike())
        finally:
            part_at_work.reset(token)
        self._striking.add_done_callback(lambda _: self._struck.set())
        await asyncio.shield(self._striking)  # whoever came by may be given up meanwhile


async def _nothing() -> None:
    return


def _moments(statement: str) -> Sequence[Moment]:
    """Nothing of ours is under way at the server while frames are published."""
    return ("before", "after") if statement == PUBLISH else ("before", "during", "after")


def short(sql: str) -> str:
    """Its first words, and its last if that is COMMIT; without what differs from one time to the next."""
    words = re.sub(r"'[^']*'|\d+", "#", " ".join(sql.rstrip("; ").split()))
    return f"{words[:60]} … COMMIT" if len(words) > 70 and words.endswith("COMMIT") else words[:70]


@contextlib.asynccontextmanager
async def as_part(name: str) -> AsyncIterator[None]:
    """What is said in here is said by this part."""
    token = part_at_work.set(name)
    try:
        yield
    finally:
        part_at_work.reset(token)

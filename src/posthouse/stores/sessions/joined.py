"""Joined: a transaction that somebody else began and will end, on whatever session it is."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from posthouse.store import Parameters, Rows
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Session

T = TypeVar("T")
Steps = Generator[tuple[str, Sequence[object]], Rows, T]
"""Statements without I/O: yields each with its parameters, and is sent its rows."""


class Joined:
    """As a store's tables take it. Each store says what it makes sure of, and what errors mean there."""

    submit = None

    def __init__(self, session: Session) -> None:
        self.session = session
        self.needs_loop = session.needs_loop
        self.savepoints = Savepoints(late=session.late)

    @property
    def connection(self) -> object:
        return self.session.theirs

    async def attend(self) -> Detach:
        await self.checked()
        with self.translating():
            return await self.session.attend(self.savepoints)

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        with self.translating(ours=False):
            return await self.session.run(sql, parameters)

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps of the store in their transaction."""
        with self.translating():
            try:
                sql, parameters = next(steps)
                while True:
                    sql, parameters = steps.send(await self.session.ours(self.text(sql), parameters))
            except StopIteration as done:
                result: T = done.value
                return result

    async def checked(self) -> object:
        """Make sure that theirs is the store's database, with tables that fit, and in a transaction."""
        raise NotImplementedError

    def translating(self, *, ours: bool = True) -> AbstractContextManager[None]:
        """Turn the driver's errors, also wrapped ones, into those of our tree; of a statement of `ours`, or of the user's."""
        raise NotImplementedError

    def text(self, sql: str) -> str:
        """A statement of ours as this store has it."""
        return sql

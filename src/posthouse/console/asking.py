"""Asking: one question of a page to the server. A page's function gets the question and returns what `msgspec` can write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from posthouse.console.access.who import Who

if TYPE_CHECKING:
    from posthouse.app import App
    from posthouse.console.estate import Estate, Problem

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    """What is asked, by whom, of which services. `path` and `query` are as they came: a page checks what it takes. `problems` gathers
    what stands in the way of a whole answer, and is sent along with it."""

    estate: Estate
    who: Who
    path: Mapping[str, str]
    query: Mapping[str, str]
    problems: list[Problem] = msgspec.field(default_factory=list)

    async def each(self, ask: Callable[[App], Awaitable[T]], services: Iterable[str] | None = None) -> dict[str, T]:
        """What each store answers, by the name of its App; what keeps others from it is among the problems."""
        told = await self.estate.each(ask, services)
        self.problems.extend(one for one in told.problems if one not in self.problems)
        return told.found

    async def one(self, service: str, ask: Callable[[App], Awaitable[T]]) -> T:
        """What the store of one service answers; Refusal 404 or 503 where it does not."""
        return await self.estate.one(service, ask)


class Refusal(Exception):
    """It cannot be answered as asked: `status` is that of HTTP, `hint` what to do."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


def refuse_nul(said: Mapping[str, object]) -> None:
    """Raise Refusal 400 for text that no PostgreSQL keeps or compares."""
    for name, value in said.items():
        if isinstance(value, str) and "\0" in value:
            raise Refusal(400, f"{name!r} has a NUL (U+0000) in it.", "Take it out.")


Page = Callable[[Ask], Awaitable[object]]

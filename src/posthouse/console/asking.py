"""Asking: one question of a page to the server. A page's function gets the question and returns what `msgspec` can write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from posthouse.console.access.who import Who

if TYPE_CHECKING:
    from posthouse.console.estate import Estate


class Ask(msgspec.Struct, frozen=True):
    """What is asked, by whom, of which services. `path` and `query` are as they came: a page checks what it takes."""

    estate: Estate
    who: Who
    path: Mapping[str, str]
    query: Mapping[str, str]


class Refusal(Exception):
    """It cannot be answered as asked: `status` is that of HTTP, `hint` what to do."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


Page = Callable[[Ask], Awaitable[object]]

"""PORT: whoever carries messages to guests, and a simulator of one. It takes a message now, and says later what became of it."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from melmastoon.vendors.world import World, world

Fate = Literal["delivered", "unknown_address", "mailbox_full", "blocked"]
"""Delivered, or why it never will be."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be carried. The same key twice is the same letter."""

    key: str
    channel: str
    to: str
    text: str


class Carrier(Protocol):
    """Every method is idempotent and raises VendorTrouble; then nobody knows what was done."""

    async def take(self, letter: Letter) -> None:
        """Accept a letter. It is carried once, however often it is handed over."""
        ...

    async def fate(self, key: str) -> Fate | None:
        """What became of a letter; None: it was never handed over."""
        ...


def carrier() -> Carrier:
    """The one that the house has a contract with."""
    return SimulatedCarrier(world())


_TABLE = """
CREATE TABLE IF NOT EXISTS letters (
    key TEXT PRIMARY KEY, channel TEXT NOT NULL, recipient TEXT NOT NULL, text TEXT NOT NULL, asked INTEGER NOT NULL DEFAULT 1
)"""
_TAKE = """
INSERT INTO letters (key, channel, recipient, text) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET asked = letters.asked + 1"""

_CODES: dict[str, Fate] = {"550": "unknown_address", "552": "mailbox_full", "554": "blocked", "250": "delivered"}
"""The carrier's words, and ours."""


class SimulatedCarrier:
    """A carrier that keeps its own books, in a mood that the weather decides: slow, failing, silent, or hearing twice."""

    def __init__(self, outside: World) -> None:
        self._outside = outside
        with outside.ledger.writing() as books:
            books.execute(_TABLE)

    async def take(self, letter: Letter) -> None:
        def work() -> None:
            with self._outside.ledger.writing() as books:
                books.execute(_TAKE, (letter.key, letter.channel, letter.to, letter.text))

        await self._outside.ask("take", letter.key, work)

    async def fate(self, key: str) -> Fate | None:
        code = await self._outside.ask("fate", key, lambda: self._code(key))
        return None if code is None else _CODES[code]

    def _code(self, key: str) -> str | None:
        known = self._outside.ledger.read("SELECT channel FROM letters WHERE key = ?", key)
        if not known:
            return None
        if not self._outside.weather.declines("deliver", key):
            return "250"
        return {"email": "550", "sms": "554"}.get(str(known[0][0]), "552")

"""PORT: a payment gateway, and the simulators of three rails. Cash has no vendor."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from melmastoon.vendors.world import World, world

CardRail = Literal["card", "paypal", "mfs"]


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """Money to be taken. The same key twice is the same charge."""

    key: str
    tenant: str
    booking_id: str
    amount_cents: int


class Payback(msgspec.Struct, frozen=True, kw_only=True):
    """Money to be given back out of a charge. The same key twice is the same refund."""

    key: str
    charge: str
    tenant: str
    booking_id: str
    amount_cents: int


class Moved(msgspec.Struct, frozen=True):
    """The money was moved."""

    amount_cents: int


class Refused(msgspec.Struct, frozen=True):
    """It was not, and will not be under this key."""

    reason: str


Answer = Moved | Refused


class Gateway(Protocol):
    """One rail. Every method raises VendorTrouble; then nobody knows what was done until `look` or `void` has answered."""

    async def capture(self, charge: Charge) -> Answer:
        """Take money. Idempotent by its key."""
        ...

    async def refund(self, payback: Payback) -> Answer:
        """Give money back. Idempotent by its key."""
        ...

    async def look(self, key: str) -> Answer | None:
        """What became of a key so far; None: nothing is known of it, which may change yet."""
        ...

    async def void(self, key: str) -> Answer:
        """From now on nothing happens under this key. Says what happened before: Moved when it was too late."""
        ...


def gateway(rail: CardRail) -> Gateway:
    """The gateway of a rail."""
    return SimulatedGateway(rail, world())


_WORDS: Mapping[str, Mapping[str, str]] = {
    "card": {"card_declined": "declined", "canceled": "voided", "charge_exceeded": "too_much"},
    "paypal": {"INSTRUMENT_DECLINED": "declined", "ORDER_VOIDED": "voided", "REFUND_AMOUNT_EXCEEDED": "too_much"},
    "mfs": {"R01": "declined", "R07": "voided", "R12": "too_much"},
}
"""What each vendor says when it does not move money, and what that means to us."""


class SimulatedGateway:
    """A vendor that keeps its own books, in a mood that the weather decides."""

    def __init__(self, rail: CardRail, outside: World) -> None:
        self._rail = rail
        self._outside = outside

    async def capture(self, charge: Charge) -> Answer:
        return self._read(await self._outside.ask("capture", charge.key, lambda: self._captured(charge)))

    async def refund(self, payback: Payback) -> Answer:
        return self._read(await self._outside.ask("refund", payback.key, lambda: self._refunded(payback)))

    async def look(self, key: str) -> Answer | None:
        found = await self._outside.ask("look", key, lambda: self._found(key))
        return None if found is None else self._read(found)

    async def void(self, key: str) -> Answer:
        return self._read(await self._outside.ask("void", key, lambda: self._voided(key)))

    def _read(self, answer: int | str) -> Answer:
        """The vendor's answer in our words: an amount, or a code."""
        return Moved(answer) if isinstance(answer, int) else Refused(_WORDS[self._rail].get(answer, answer))

    def _code(self, meaning: str) -> str:
        return next(code for code, known in _WORDS[self._rail].items() if known == meaning)

    # On the vendor's side.

    def _captured(self, charge: Charge) -> int | str:
        with self._outside.ledger.writing() as books:
            if (known := self._known(books, charge.key)) is not None:
                books.execute("UPDATE charges SET asked = asked + 1 WHERE key = ?", (charge.key,))
                return known
            declined = self._outside.weather.declines("capture", charge.key)
            books.execute(
                "INSERT INTO charges (key, rail, tenant, booking_id, amount_cents, state) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    charge.key,
                    self._rail,
                    charge.tenant,
                    charge.booking_id,
                    charge.amount_cents,
                    "declined" if declined else "captured",
                ),
            )
        return self._code("declined") if declined else charge.amount_cents

    def _refunded(self, payback: Payback) -> int | str:
        with self._outside.ledger.writing() as books:
            if (known := self._known(books, payback.key)) is not None:
                books.execute("UPDATE refunds SET asked = asked + 1 WHERE key = ?", (payback.key,))
                return known
            if payback.amount_cents > _left(books, payback.charge):
                return self._code("too_much")
            declined = self._outside.weather.declines("refund", payback.key)
            books.execute(
                "INSERT INTO refunds (key, charge, tenant, booking_id, amount_cents, state) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    payback.key,
                    payback.charge,
                    payback.tenant,
                    payback.booking_id,
                    payback.amount_cents,
                    "declined" if declined else "refunded",
                ),
            )
        return self._code("declined") if declined else payback.amount_cents

    def _found(self, key: str) -> int | str | None:
        with self._outside.ledger.writing() as books:
            return self._known(books, key)

    def _voided(self, key: str) -> int | str:
        """Both books: a key is one or the other, and nobody may use it later."""
        with self._outside.ledger.writing() as books:
            if (known := self._known(books, key)) is not None:
                return known
            books.execute("INSERT INTO charges VALUES (?, ?, '', '', 0, 'voided', 0)", (key, self._rail))
            books.execute("INSERT INTO refunds VALUES (?, '', '', '', 0, 'voided', 0)", (key,))
        return self._code("voided")

    def _known(self, books: sqlite3.Connection, key: str) -> int | str | None:
        for table in ("charges", "refunds"):
            row = books.execute(f"SELECT amount_cents, state FROM {table} WHERE key = ?", (key,)).fetchone()
            if row is not None:
                return int(row[0]) if row[1] in ("captured", "refunded") else self._code(row[1])
        return None


def _left(books: sqlite3.Connection, charge: str) -> int:
    """What can still be given back of a charge."""
    (cents,) = books.execute(
        "SELECT COALESCE((SELECT amount_cents FROM charges WHERE key = ? AND state = 'captured'), 0)"
        " - COALESCE((SELECT SUM(amount_cents) FROM refunds WHERE charge = ? AND state = 'refunded'), 0)",
        (charge, charge),
    ).fetchone()
    return int(cents)

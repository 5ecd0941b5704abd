"""Promise: what a broker's capability sheet comes to, in the words of the promise. Printed from the sheet, never by heart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.broker import Capabilities


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the promise: whether it holds here, and why."""

    text: str
    holds: bool
    because: str


def promise_of(sheet: Capabilities) -> Sequence[Clause]:
    """The clauses that depend on the broker, and the one that never does."""
    return [
        Clause(
            text="applied once per consumer",
            holds=True,
            because="the inbox decides, in the transaction of the effect",
        ),
        Clause(
            text="in order per key", holds=sheet.ordered_publish and sheet.ordered_redelivery, because=_order(sheet)
        ),
        Clause(text="survives a crash of the broker's machine", holds=sheet.durable_ack, because=_durability(sheet)),
        Clause(
            text="can be read again from an earlier point",
            holds=sheet.seek,
            because="it keeps its history" if sheet.seek else "it keeps no history: use the archive",
        ),
    ]


def _order(sheet: Capabilities) -> str:
    if not sheet.ordered_publish:
        return "it may store frames of one key in another order: what comes too early is held until the gap is filled"
    if not sheet.ordered_redelivery:
        return "what comes again may come out of order: it is held until its turn"
    return "it stores and repeats frames of one key in their order"


def _durability(sheet: Capabilities) -> str:
    if sheet.durable_ack:
        return "it answers when the frame is stored for good"
    first, *others = sheet.notes or ("it answers before the frame is stored for good",)
    return f"{first} (and {len(others)} more of the checks above)" if others else first

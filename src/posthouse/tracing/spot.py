"""Spot: one event that a trace has found, and where."""

from __future__ import annotations

from typing import Literal

import msgspec

from posthouse.events import Event

Place = Literal["log", "outbox", "refused", "held", "timer"]
"""log: the broker keeps it. outbox: committed, and found only there. refused: the broker does not take it. held: found only
among what a consumer holds. timer: it will be said later."""


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the topic that it goes through. `at` is when it was said, or is due, in seconds since 1970; `note` is
    what the broker said when it refused it."""

    event: Event[bytes]
    topic: str
    place: Place
    at: float
    note: str = ""

    @property
    def service(self) -> str:
        """Who said it."""
        producer = self.event.producer
        return producer.service if producer is not None else self.event.source.rpartition("/")[2]

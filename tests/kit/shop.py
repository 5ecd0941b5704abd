"""One shop of events, for tests that need some."""

from __future__ import annotations

from posthouse import Payload


class OrderPlaced(Payload):
    order_id: str
    number: int

"""The values that the tests write and read."""

from __future__ import annotations

from posthouse.clock import new_id
from posthouse.store import HeldEvent, HeldState, InboxEntry, OutboxRow, StuckRow

TOPIC = "shop.orders"
CONSUMER = "billing"


def row(
    key: str | None,
    *,
    topic: str = TOPIC,
    tenant: str = "t1",
    event_id: str | None = None,
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    numbered: bool | None = None,
    idempotency_key: str | None = None,
) -> OutboxRow:
    """A row; numbered when it has a key."""
    return OutboxRow(
        topic=topic,
        tenant=tenant,
        event_id=event_id or new_id(),
        body=body,
        headers=headers or {},
        key=key,
        numbered=key is not None if numbered is None else numbered,
        idempotency_key=idempotency_key,
    )


def stuck(refused: OutboxRow, *, after: float = 0.0, attempts: int = 1, quarantined: bool = False) -> StuckRow:
    """A row that the broker refused."""
    return StuckRow(row=refused, attempts=attempts, error="refused", quarantined=quarantined, after=after)


def drawn(milliseconds: int) -> str:
    """A UUIDv7 that was drawn so long after 1970."""
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7abc-8def-0123456789ab"


def entry(
    sequence: int | None,
    *,
    topic: str = TOPIC,
    tenant: str = "t1",
    key: str = "k",
    event_id: str | None = None,
    lineage: int = 1,
    time: float = 1000.0,
) -> InboxEntry:
    """An event of a key with a number, or one that stands alone."""
    name = event_id or (new_id() if sequence is None else f"{topic}/{tenant}/{key}/{sequence}")
    return InboxEntry(
        topic=topic,
        tenant=tenant,
        event_id=name,
        digest=name.encode()[:16],
        time=time,
        key=None if sequence is None else key,
        sequence=sequence,
        lineage=lineage,
    )


def held(one: InboxEntry, state: HeldState) -> HeldEvent:
    """An event held by the consumer of these tests."""
    return HeldEvent(consumer=CONSUMER, entry=one, state=state, body=b"{}")

"""Receipts: what a write has said, so that a page can be told when a read model has it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Literal

import msgspec

from posthouse.app import App
from posthouse.errors import ConfigurationError, TransactionClosed
from posthouse.processes.projection import Projection
from posthouse.sending.transaction import Tx
from posthouse.store import BLOCKING, HeldFilter, InboxEntry, KeyPosition, Store

Progress = Literal["processing", "held", "applied"]
"""processing: not yet. held: it could not be applied, and waits for a retry or an operator. applied: whoever reads sees it."""

MOST = 100
"""Facts of one receipt."""


class Written(msgspec.Struct, frozen=True, array_like=True):
    """One fact of a write: where it stands in its key, or which one it is where it has none."""

    topic: str
    event_id: str
    key: str | None = None
    sequence: int = 0
    lineage: int = 1


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What a write has said. Whoever makes one up learns nothing of other tenants: whose it is, the server knows."""

    facts: tuple[Written, ...]

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> Receipt | None:
        """The receipt that a text stands for; None for any other text."""
        try:
            raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            receipt = msgspec.json.decode(raw, type=cls)
        except (binascii.Error, UnicodeEncodeError, msgspec.MsgspecError, ValueError):
            return None
        return receipt if 0 < len(receipt.facts) <= MOST else None


class Saying:
    """What a transaction is about to say; `await receipt()` once it is committed."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._rows = tx.mark().rows
        if not self._rows or len({(row.topic, row.key or row.event_id) for row in self._rows}) > MOST:
            raise ConfigurationError(
                f"saying(tx) is for a transaction that says 1 to {MOST} things: call it behind the last publish of its block"
            )
        if any(row.key is None and row.idempotency_key is not None for row in self._rows):
            raise ConfigurationError(
                "saying(tx): of an event without a key that has an idempotency key nobody knows under which id it stands"
            )

    async def receipt(self) -> str:
        """For the page that asked for the write, as text. TransactionClosed while its block is not left yet."""
        if not self._tx.closed:
            raise TransactionClosed("the transaction is still open: ask for the receipt behind its block")
        facts: dict[tuple[str, str], Written] = {}
        for row in self._rows:
            number, lineage = 0, 1
            if row.key is not None and row.numbered:
                number, lineage = await self._tx.store.outbox.last_number(row.topic, row.tenant, row.key)
            key = row.key if row.numbered else None
            facts[row.topic, key or row.event_id] = Written(row.topic, row.event_id, key, number, lineage)
        return str(Receipt(tuple(facts.values())))


def saying(tx: Tx) -> Saying:
    """Keep in mind what a transaction says, at the end of its block; the receipt is had behind it."""
    return Saying(tx)


async def progress(app: App, reads: Sequence[Projection], tenant: str, receipt: Receipt) -> Progress:
    """How far those of these read models are that read what a receipt names. ConfigurationError where none does."""
    wiring = app.opened.projections.wiring
    await app.opened.open()
    found: set[Progress] = set()
    for projection in reads:
        topics = wiring.topics(projection)
        for fact in receipt.facts:
            if fact.topic in topics:
                found.add(await _of_one(app.store, projection, tenant, fact))
    if not found:
        raise ConfigurationError("no read model that is asked here reads what the receipt names")
    return "processing" if "processing" in found else "held" if "held" in found else "applied"


async def _of_one(store: Store, projection: Projection, tenant: str, fact: Written) -> Progress:
    numbered = fact.key is not None
    entry = InboxEntry(
        topic=fact.topic,
        tenant=tenant,
        event_id=fact.event_id,
        digest=b"",
        time=0.0,
        key=fact.key,
        sequence=fact.sequence if numbered else None,
        lineage=fact.lineage,
    )
    async with store.begin(tenant=tenant) as tx:
        live = await store.projections.live(tx, projection.consumer)
        if live is None:
            return "processing"
        group = projection.group(live)
        known = await store.inbox.position_of(tx, group, entry)
    if isinstance(known, KeyPosition):
        if known.has_passed(fact.lineage, fact.sequence):
            return "applied"
        return "held" if known.waiting is not None and known.waiting <= fact.sequence else "processing"
    if known is None:
        return "processing"
    held = await store.held.find(HeldFilter(consumer=group, event_id=fact.event_id, tenant=tenant), limit=1)
    return "held" if held and held[0].state in BLOCKING | {"quarantined"} else "applied"

"""Due: timers whose time has come, where facts are sealed: looked at, numbered, sealed, and put into the outbox."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import msgspec

from posthouse.clock import Clock, new_id
from posthouse.errors import EventError
from posthouse.events import Event, codec_of, decode_any
from posthouse.seam.drafts import DraftedRow, drafted
from posthouse.seam.seals import Arrival, Seals
from posthouse.store import OutboxRow, Transaction
from posthouse.store.inbox import drawn_at
from posthouse.store.outbox import Number, OutboxTable

log = logging.getLogger("posthouse.timers")


class SealedTimers:
    """What `TimerTable.fire` gives its rows to. One that is not as it was set goes out as it is: its readers refuse it, while a
    seal of ours would make it true. So does one whose key is revoked by now: that it was set before, its row alone would say, and
    whoever has the key may write one. One for which there is no key now waits, and nobody waits for it."""

    def __init__(self, outbox: OutboxTable, seals: Seals, clock: Clock) -> None:
        self._outbox = outbox
        self._seals = seals
        self._clock = clock

    async def append(self, transaction: Transaction, rows: Sequence[OutboxRow]) -> Collection[str]:
        ready, left = [], []
        for row in rows:
            try:
                ready.append(self._ready(row))
            except EventError as error:
                log.error("a timer of %s, %s, has to wait: %s", row.topic, row.event_id, error)
                left.append(row.event_id)
        rows = [one.row if isinstance(one, DraftedRow) else one for one in ready]
        numbers = await self._outbox.number(transaction, rows)
        fresh = [_numbered(one, number) for one, number in zip(ready, numbers, strict=True) if number.fresh]
        await self._outbox.append(transaction, fresh, numbered=True)
        return left

    def _ready(self, row: OutboxRow) -> OutboxRow | DraftedRow:
        """What is to be sealed under the id that it gets, or what is not to be sealed. EventError for what nobody can seal now: before it
        has a number, which would be missing otherwise."""
        if (event := self._drawn(row)) is None:
            return row
        codec = codec_of(row.headers, row.body)

        def encode(event: Event[bytes]) -> OutboxRow:
            encoded = codec.encode(event)
            return msgspec.structs.replace(row, event_id=event.id, headers=encoded.headers, body=encoded.body)

        return drafted(self._seals.draft(row.topic, event), encode)

    def _drawn(self, row: OutboxRow) -> Event[bytes] | None:
        """The fact of a timer, under a new id where it gets a number, as `TimerTable.fire` says; None for one that is not to be sealed."""
        try:
            event = decode_any(row.headers, row.body)
            intact = _says(row, event) and self._seals.is_intact(
                Arrival(row.topic, self._clock.now()), event, waiting=True
            )
        except Exception as error:
            log.warning("a timer of %s, %s, cannot be read: %s", row.topic, row.event_id, error)
            return None
        if not intact:
            log.warning("a timer of %s, %s, is not as it was sealed: it goes out as it is", row.topic, row.event_id)
            return None
        anew = row.key is not None and row.numbered and drawn_at(event.id)
        return msgspec.structs.replace(event, id=new_id()) if anew else event


def _says(row: OutboxRow, event: Event[bytes]) -> bool:
    """Whether the columns, by which it is numbered, are those of its fact."""
    return (row.tenant, row.key, row.numbered) == (event.tenant, event.key, event.key is not None)


def _numbered(ready: OutboxRow | DraftedRow, number: Number) -> OutboxRow:
    if isinstance(ready, DraftedRow):
        return ready.sealed(number)
    return msgspec.structs.replace(ready, sequence=number.sequence, lineage=number.lineage)

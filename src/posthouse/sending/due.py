"""Due: timers whose time has come, where facts are sealed: looked at, numbered, sealed, and put into the outbox."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from posthouse.clock import new_id
from posthouse.events import Event, codec_of, decode_any
from posthouse.seam.outward import numbered
from posthouse.seam.seals import Seals
from posthouse.store import OutboxRow, Transaction
from posthouse.store.inbox import drawn_at
from posthouse.store.outbox import Number, OutboxTable

log = logging.getLogger("posthouse.timers")


class SealedTimers:
    """What `TimerTable.fire` gives its rows to. One that is not as it was set goes out as it is: its readers refuse it, while a
    seal of ours would make it true."""

    def __init__(self, outbox: OutboxTable, seals: Seals) -> None:
        self._outbox = outbox
        self._seals = seals

    async def append(self, transaction: Transaction, rows: Sequence[OutboxRow]) -> None:
        drawn = [(row, self._drawn(row)) for row in rows]
        named = [row if event is None else msgspec.structs.replace(row, event_id=event.id) for row, event in drawn]
        numbers = await self._outbox.number(transaction, named)
        found = zip(named, (event for _, event in drawn), numbers, strict=True)
        fresh = [self._sealed(row, event, number) for row, event, number in found if number.fresh]
        await self._outbox.append(transaction, fresh, numbered=True)

    def _drawn(self, row: OutboxRow) -> Event[bytes] | None:
        """The fact of a timer, under a new id where it gets a number, as `TimerTable.fire` says; None for one that is not to be sealed."""
        try:
            event = decode_any(row.headers, row.body)
            intact = self._seals.is_intact(row.topic, event)
        except Exception as error:
            log.warning("a timer of %s, %s, cannot be read: %s", row.topic, row.event_id, error)
            return None
        if not intact:
            log.warning("a timer of %s, %s, is not as it was sealed: it goes out as it is", row.topic, row.event_id)
            return None
        anew = row.key is not None and row.numbered and drawn_at(event.id)
        return msgspec.structs.replace(event, id=new_id()) if anew else event

    def _sealed(self, row: OutboxRow, event: Event[bytes] | None, number: Number) -> OutboxRow:
        row = msgspec.structs.replace(row, sequence=number.sequence, lineage=number.lineage)
        if event is None:
            return row
        seal = self._seals.seal(row.topic, numbered(event, number)).extensions
        encoded = codec_of(row.headers, row.body).encode(msgspec.structs.replace(event, extensions=seal))
        return msgspec.structs.replace(row, headers=encoded.headers, body=encoded.body)

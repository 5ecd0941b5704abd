"""Due: timers whose time has come, where facts are sealed: looked at, numbered, sealed, and put into the outbox."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from posthouse.clock import new_id
from posthouse.errors import EventError
from posthouse.events import Event, codec_of, decode_any
from posthouse.events.limits import MAX_LINEAGE, MAX_SEQUENCE
from posthouse.seam.outward import numbered
from posthouse.seam.seals import Seal, Seals
from posthouse.store import OutboxRow, Transaction
from posthouse.store.inbox import drawn_at
from posthouse.store.outbox import Number, OutboxTable

log = logging.getLogger("posthouse.timers")


class Due(NamedTuple):
    """A timer's row under the id that it gets, and its fact with what seals it; None where it is not to be sealed."""

    row: OutboxRow
    fact: tuple[Event[bytes], Seal] | None = None


class SealedTimers:
    """What `TimerTable.fire` gives its rows to. One that is not as it was set goes out as it is: its readers refuse it, while a
    seal of ours would make it true. One for which there is no key now waits, and nobody waits for it."""

    def __init__(self, outbox: OutboxTable, seals: Seals) -> None:
        self._outbox = outbox
        self._seals = seals

    async def append(self, transaction: Transaction, rows: Sequence[OutboxRow]) -> Collection[str]:
        ready, left = [], []
        for row in rows:
            try:
                ready.append(self._ready(row))
            except EventError as error:
                log.error("a timer of %s, %s, has to wait: %s", row.topic, row.event_id, error)
                left.append(row.event_id)
        numbers = await self._outbox.number(transaction, [due.row for due in ready])
        fresh = [_sealed(due, number) for due, number in zip(ready, numbers, strict=True) if number.fresh]
        await self._outbox.append(transaction, fresh, numbered=True)
        return left

    def _ready(self, row: OutboxRow) -> Due:
        """EventError for what nobody can seal now: before it has a number, which would be missing otherwise."""
        if (event := self._drawn(row)) is None:
            return Due(row)
        due = Due(msgspec.structs.replace(row, event_id=event.id), (event, self._seals.sealer(row.topic, event)))
        _sealed(due, Number(event.id, True, MAX_SEQUENCE if event.key is not None else None, MAX_LINEAGE))
        return due

    def _drawn(self, row: OutboxRow) -> Event[bytes] | None:
        """The fact of a timer, under a new id where it gets a number, as `TimerTable.fire` says; None for one that is not to be sealed."""
        try:
            event = decode_any(row.headers, row.body)
            intact = _says(row, event) and self._seals.is_intact(row.topic, event)
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


def _sealed(due: Due, number: Number) -> OutboxRow:
    row = msgspec.structs.replace(due.row, sequence=number.sequence, lineage=number.lineage)
    if due.fact is None:
        return row
    event, seal = due.fact
    extensions = seal(numbered(event, number)).extensions
    encoded = codec_of(row.headers, row.body).encode(msgspec.structs.replace(event, extensions=extensions))
    return msgspec.structs.replace(row, headers=encoded.headers, body=encoded.body)

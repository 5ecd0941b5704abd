"""Drafts: rows whose bytes are ready but for a seal, which covers a number that they do not have yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from posthouse.events import Event
from posthouse.seam.seals import SEAL, Draft
from posthouse.store import OutboxRow
from posthouse.store.outbox import Number

HEAD = 48
"""Bytes that tell a stand-in from all else."""

Encode = Callable[[Event[bytes]], OutboxRow]
"""The row of a fact. It raises for what no broker and no store would take."""


class DraftedRow(NamedTuple):
    """A row with a stand-in for its seal. It was encoded before it takes a number: who joined a transaction may commit it although a row
    was refused, and a number or an intent that was taken for that would be missing for good."""

    row: OutboxRow
    draft: Draft
    encode: Encode

    def sealed(self, number: Number) -> OutboxRow:
        """The row with its number, and the seal that covers it. Its bytes stay without the number: the relay stamps what the columns say,
        and a column that was changed breaks the seal."""
        event, headers, body = self.draft.event, self.row.headers, self.row.body
        seal, stand_in = self.draft.sealed(number.sequence, number.lineage), str(event.extensions[SEAL])
        if (changed := _replaced(body, stand_in.encode(), seal.encode())) is not None:
            body = changed
        elif name := next((name for name, value in headers.items() if value == stand_in), None):
            headers = {**headers, name: seal}
        else:  # a format of somebody else's, which writes it in another way, or a fact that quotes it
            made = self.encode(msgspec.structs.replace(event, extensions={**event.extensions, SEAL: seal}))
            headers, body = made.headers, made.body
        return msgspec.structs.replace(
            self.row, headers=headers, body=body, sequence=number.sequence, lineage=number.lineage
        )


def _replaced(body: bytes, found: bytes, by: bytes) -> bytes | None:
    """A body with one text in place of another that is in it once; None where it is not. Its beginning is looked for, which is as good and
    many times as fast."""
    head = found[:HEAD]
    place = body.find(head)
    if place < 0 or not body.startswith(found, place) or body.find(head, place + len(found)) >= 0:
        return None
    return b"".join((body[:place], by, body[place + len(found) :]))


def drafted(draft: Draft, encode: Encode) -> DraftedRow:
    """A fact about to be sealed, encoded. Raises what `encode` raises."""
    return DraftedRow(encode(draft.event), draft, encode)

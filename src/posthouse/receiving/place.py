"""Place: how an event is held, beside what it says itself. The columns of a row are signed by nobody; what is in it is."""

from __future__ import annotations

import hashlib
import re

from posthouse.events import Event
from posthouse.seam.seals import Place
from posthouse.store import WAITED, HeldEvent, InboxEntry

_BESIDE = re.compile(r"[0-9a-f-]{36}" + re.escape(WAITED))
"""What stands behind the id of an event that waited for its saga."""


def digest_of(body: bytes) -> bytes:
    """What tells whether two events with one id are the same."""
    return hashlib.blake2b(body, digest_size=16).digest()


def place_of(held: HeldEvent, event: Event[bytes], *, loose: bool) -> Place:
    """How an event is held. One whose frame was refused when it came is let in as what it says it is: its row says nothing."""
    entry = held.entry
    return Place(
        name=entry.event_id if held.type else event.id,
        digest=entry.digest,
        intact=entry.digest == digest_of(held.body),
        in_turn=not held.type or entry.sequence is not None or event.sequence is None or event.key is None,
        loose=loose,
    )


def unlike(held: HeldEvent, event: Event[bytes], *, waits: bool) -> str:
    """What a row says that the event in it does not; empty when they agree. One that has no number is another matter: see `place_of`.
    `waits`: events may have waited for a saga here."""
    row = held.entry
    agrees = {
        "type": held.type == event.type,
        "tenant": row.tenant == event.tenant,
        "key": row.key == event.key,
        "number": row.sequence is None or row.sequence == event.sequence,
        "lineage": row.lineage == event.lineage,
        "id": is_named(row, event, waits=waits),
    }
    return ", ".join(name for name, same in agrees.items() if not same)


def is_named(row: InboxEntry, event: Event[bytes], *, waits: bool) -> bool:
    """Whether a row has a name that the event may be held under: its id; that with the digest behind it, beside another event that
    has the id; or one that it got when it began to wait."""
    if row.event_id in (event.id, beside(row, event.id)):
        return True
    name = row.event_id.removesuffix(f"#{row.digest.hex()}")
    return waits and name.startswith(f"{event.id}#") and _BESIDE.fullmatch(name[len(event.id) + 1 :]) is not None


def beside(entry: InboxEntry, event_id: str) -> str:
    """The name of an event whose id another one has."""
    return f"{event_id}#{entry.digest.hex()}"

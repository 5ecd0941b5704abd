"""What audit-service can be asked to do."""

from __future__ import annotations

import hashlib

from melmastoon.audit.chain import FIND, Entry, append, close_day
from melmastoon.audit.handlers import say
from melmastoon.facts.audit import MerkleAnchored, audit
from melmastoon.tables import run
from posthouse import Tx, app_of
from posthouse.events import timestamp


async def append_note(tx: Tx, note_id: str, text: str) -> bool:
    """Put an operator's words into the chain: a replay, a cutover, a refund that the policy did not give. False when a note
    of this id is there."""
    if await run(tx, FIND, tx.tenant, note_id):
        return False
    entry = Entry(
        entry_id=note_id,
        about="note",
        said_at=timestamp(app_of(audit).clock.now()),
        digest=hashlib.sha256(text.encode()).hexdigest(),
        announced=True,
    )
    say(tx, await append(tx, [entry]))
    return True


async def anchor(tx: Tx) -> MerkleAnchored | None:
    """Close the tenant's last day if it is over; None when there is nothing to close. Days close by themselves with the first
    entry of another one: this is for tenants of whom nothing more is heard."""
    closed = await close_day(tx)
    say(tx, closed)
    return closed[0] if closed else None

"""Somebody with an account is erased: the account stays, so that what was done in its name has an owner, and its address goes."""

from __future__ import annotations

from melmastoon.facts.iam import SubjectErased, iam
from melmastoon.tables import run
from posthouse import ErasureReceipt, Event, Tx

# One address has one account: of those who have none the id stands for it.
FORGET = "UPDATE iam_user SET email = 'erased:' || user_id WHERE tenant = ? AND user_id = ?"


@iam.on(SubjectErased, consumer="erasure")
async def forget_address(event: Event[ErasureReceipt], tx: Tx) -> None:
    await run(tx, FORGET, tx.tenant, event.data.subject)

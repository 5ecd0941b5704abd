"""Recording: one statement and the facts that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.seam.context import EventContext
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.seam.timing import OK
from posthouse.sending.transaction import Begin, TransactionScope
from posthouse.store import Parameters, Store


async def record(
    store: Store,
    begin: Begin,
    builder: EnvelopeBuilder,
    context: EventContext,
    sql: str,
    parameters: Parameters,
    facts: Sequence[object],
) -> bool:
    """Run a statement and, if it changed a row, say the facts, in a transaction of their own; whether it did. At one stroke
    where the store can."""
    rows = [row for fact in facts for row in builder.build(fact, context)]
    if len(rows) == 1 and not builder.waits:
        with builder.seam.timing.measure("transaction", builder.service) as crossing:
            changed = await store.append_after(sql, parameters, rows[0])
            crossing.outcome = OK if changed is not None else "in a block"
        if changed is not None:
            return changed
    async with TransactionScope(begin, context) as tx:
        found = await tx.execute(sql, parameters)
        if found or found.rowcount > 0:
            tx.append(rows)
            return True
        return False

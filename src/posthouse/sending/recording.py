"""Recording: one statement and the facts that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.seam.context import EventContext
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.seam.seam import fate_of
from posthouse.seam.timing import OK
from posthouse.sending.transaction import Begin, TransactionScope
from posthouse.store import OutboxRow, Parameters, Store
from posthouse.store.savepoints import Fate


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
    try:
        said = await _record(store, begin, builder, context, sql, parameters, rows)
    except BaseException as error:
        _told(builder, rows, fate_of(error), error)
        raise
    _told(builder, rows, "committed" if said else "rolled back")
    return said


async def _record(
    store: Store,
    begin: Begin,
    builder: EnvelopeBuilder,
    context: EventContext,
    sql: str,
    parameters: Parameters,
    rows: Sequence[OutboxRow],
) -> bool:
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


def _told(builder: EnvelopeBuilder, rows: Sequence[OutboxRow], fate: Fate, error: BaseException | None = None) -> None:
    if (spans := builder.seam.tracing.spans) is not None:
        spans.told([row.event_id for row in rows], fate, error)

"""Clearing: a generation that nobody reads any more goes, with its group, its tables and what was noted about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from posthouse.broker import Topology
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.wiring import Wiring
from posthouse.pulse import alive
from posthouse.store.projections import Generation
from posthouse.survey import Surveyed

log = logging.getLogger("posthouse.projection")

BATCH = 5_000


async def clear(wiring: Wiring, projection: Projection, generation: Generation) -> None:
    """Everything of a retired generation; may be done again, by several at once. Raises BrokerError while a member is at
    work in its group, and StoreUnavailable while somebody reads its tables."""
    if await _condemned(wiring, generation) is None:
        return
    await _remove_group(wiring, projection.group(generation.number), wiring.topics(projection))
    async with wiring.store.begin(tenant="platform") as tx:
        tables = await wiring.store.projections.condemn(tx, generation.projection, generation.number)
        for table in reversed(tables or ()):  # one that refers to another was made after it
            await tx.execute(f"DROP TABLE IF EXISTS {table}")
    if tables is not None:
        await _remove(wiring, projection, generation.number)
        log.info("%s: generation %d is gone", generation.projection, generation.number)


async def clear_lost(wiring: Wiring, projection: Projection, number: int) -> None:
    """What a group has left behind whose generation was lost with a server. Raises BrokerError while a member is at work."""
    await _remove_group(wiring, projection.group(number), wiring.topics(projection))
    await _remove(wiring, projection, number)


async def _remove(wiring: Wiring, projection: Projection, number: int) -> None:
    gone = False
    while not gone:
        gone = await wiring.store.projections.remove(projection.consumer, number, projection.group(number), BATCH)
        alive()


async def _condemned(wiring: Wiring, generation: Generation) -> Sequence[str] | None:
    """What it says now that it is locked: whoever saw it as retired may have seen it long ago."""
    async with wiring.store.begin(tenant="platform") as tx:
        return await wiring.store.projections.condemn(tx, generation.projection, generation.number)


async def _remove_group(wiring: Wiring, group: str, topics: list[str]) -> None:
    broker = wiring.broker
    if not isinstance(broker, Surveyed):
        log.warning(
            "the %s broker cannot remove groups: %s stays there and is read by nobody", broker.sheet.name, group
        )
        return
    things = await broker.survey(Topology(topics=topics, groups={group: topics}))
    gone = [thing for thing in things if thing.group == group and thing.exists]
    if gone:
        await broker.remove(gone)

"""Judging: whether a read model has, or will have, all that ever happened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from posthouse.broker import Progress, Start
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.wiring import Wiring
from posthouse.store.projections import Generation, History

log = logging.getLogger("posthouse.projection")

LOOKS, PAUSE = 20, 0.05
"""So many looks for one around which nothing moved, and seconds between two."""


async def judge(wiring: Wiring, projection: Projection, generation: Generation) -> None:
    """Look at a first generation before it is fed for the first time, and note what was found: what had happened before it
    was there is missing for good, unless the broker has it. The figures are those of one moment: of a store and a broker that
    others use meanwhile, those of a look around which nothing moved. Where there is none, the model counts as lacking what may
    have been counted twice: a rebuild mends that, and nothing would mend a model that is called whole and is not."""
    table, topics = wiring.store.projections, wiring.topics(projection)
    for _ in range(LOOKS):
        before = await _figures(wiring, projection)
        progress = await wiring.broker.progress(projection.group(generation.number), topics)
        after = await _figures(wiring, projection)
        if before == after:
            break
        await asyncio.sleep(PAUSE)
    happened, unsent = max(before[0], after[0]), min(before[1], after[1])
    history = found(
        progress,
        start=wiring.start,
        keeps=wiring.broker.sheet.history,
        happened=happened,
        unsent=unsent,
    )
    if history == "partial":
        log.warning(
            "%s: generation %d lacks what happened before it was there: run `posthouse projection rebuild`",
            generation.projection,
            generation.number,
        )
    await table.judge(generation.projection, generation.number, history)


async def _figures(wiring: Wiring, projection: Projection) -> tuple[int, int, int]:
    """How much has happened, what of it is not with the broker yet, and how much was ever said."""
    happened = await wiring.store.projections.extent(wiring.streams(projection))
    counts, topics = await wiring.store.counts(), wiring.topics(projection)
    of_topics = [sum(figures.get(topic, 0) for topic in topics) for figures in (counts.unsent, counts.committed)]
    return happened, of_topics[0], of_topics[1]


def found(progress: Mapping[str, Progress], *, start: Start, keeps: bool, happened: int, unsent: int) -> History:
    """What the log, as a new group finds it, and the number of events in the service's own streams say about the model."""
    stored = sum(one.stored for one in progress.values())
    if not keeps:
        return "partial" if happened > unsent else "whole"
    if any(one.truncated for one in progress.values()) or (start == "latest" and stored > 0):
        return "partial"
    return "partial" if happened > stored + unsent else "whole"

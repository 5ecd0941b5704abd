"""Judging: whether a read model has, or will have, all that ever happened."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from posthouse.broker import Progress, Start
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.wiring import Wiring
from posthouse.store.projections import Generation, History

log = logging.getLogger("posthouse.projection")


async def judge(wiring: Wiring, projection: Projection, generation: Generation) -> None:
    """Look at a first generation before it is fed for the first time, and note what was found: what had happened before it
    was there is missing for good, unless the broker has it. What is in no stream any log could have is counted first, so
    that what is published meanwhile is not missed."""
    table, topics = wiring.store.projections, wiring.topics(projection)
    happened = await table.extent(wiring.streams(projection))
    unsent = (await wiring.store.counts()).unsent
    progress = await wiring.broker.progress(projection.group(generation.number), topics)
    history = found(
        progress,
        start=wiring.start,
        keeps=wiring.broker.sheet.history,
        happened=happened,
        unsent=sum(unsent.get(topic, 0) for topic in topics),
    )
    if history == "partial":
        log.warning(
            "%s: generation %d lacks what happened before it was there: run `posthouse projection rebuild`",
            generation.projection,
            generation.number,
        )
    await table.judge(generation.projection, generation.number, history)


def found(progress: Mapping[str, Progress], *, start: Start, keeps: bool, happened: int, unsent: int) -> History:
    """What the log, as a new group finds it, and the number of events in the service's own streams say about the model."""
    stored = sum(one.stored for one in progress.values())
    if not keeps:
        return "partial" if happened > unsent else "whole"
    if any(one.truncated for one in progress.values()) or (start == "latest" and stored > 0):
        return "partial"
    return "partial" if happened > stored + unsent else "whole"

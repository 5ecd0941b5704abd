"""Said: which facts followed from the events of a range when they were applied before, so that they are not said twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from posthouse.errors import DecodeError, FrameRefused
from posthouse.history.replay.choice import Choice
from posthouse.history.replay.sources import Source
from posthouse.receiving import Executor
from posthouse.seam.inward import open_frame
from posthouse.store.inbox import drawn_at
from posthouse.store.replays import Said

PAGE = 500
KEPT = 30 * 86_400.0
"""Seconds for which they are known: a replay that is paused for longer may say them again."""


async def remember_said(executor: Executor, choice: Choice, source: Source, topics: Sequence[str]) -> int:
    """Look through what a service has said in its own topics, and let its store know the keys of what followed from an event of the
    range: whoever says it again under that key says nothing. So only what the service itself said counts, and of that what any reader
    would believe: a forged fact must not stand for one that is never said then. Returns how many there were."""
    page: list[Said] = []
    found = 0
    async with aclosing(source.events(topics, choice.since)) as deliveries:
        async for delivery in deliveries:
            try:
                event = open_frame(executor.seam, executor.consumer, delivery, executor.decoder.limit)
            except (DecodeError, FrameRefused):
                continue
            if (
                event.source != executor.builder.source
                or event.idempotency_key is None
                or not _may_follow(choice, event.causation)
            ):
                continue
            fact = Said(event.tenant, delivery.frame.topic, event.idempotency_key, event.id)
            page += [
                fact,
                fact._replace(idempotency_key=f"{event.idempotency_key} {event.type}"),
            ]  # beside a newer version
            found += 1
            if len(page) >= PAGE:
                await executor.store.replays.remember(page, KEPT)
                page = []
    await executor.store.replays.remember(page, KEPT)
    return found


def _may_follow(choice: Choice, cause: str | None) -> bool:
    """Whether a fact may follow from an event of the range. An id that does not tell when it was drawn may be any."""
    if cause is None:
        return False
    moment = drawn_at(cause) / 1000
    return not moment or choice.is_within(moment)

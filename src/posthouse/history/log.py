"""Reading: everything that a broker keeps of some topics, through a group of its own that is gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from posthouse.broker import Broker, Delivery, Stream, Topology
from posthouse.clock import new_id
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import PASSING, Resource, Surveyed

BATCH = 1000
WINDOW = 5000
WAIT = 0.5
PATIENCE = 20.0
"""Seconds without a frame after which a broker that owes some is not waited for any more."""


def refusal(broker: Broker) -> str | None:
    """Why the log of a broker cannot be read; None when it can."""
    if not broker.sheet.history:
        return f"{broker.sheet.name} keeps no log: what was delivered is gone"
    if not isinstance(broker, Surveyed):
        return f"{broker.sheet.name} cannot forget a reader, so none was sent"
    return None


async def stored(broker: Broker, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
    """Every frame that was stored in these topics by now, from a time on; topics that do not exist are empty. Nothing is
    left behind, and nothing of other groups is touched. Raises BrokerError where the broker cannot do it."""
    if (why := refusal(broker)) is not None or not isinstance(broker, Surveyed):
        raise BrokerError(why or "")
    resources = await broker.survey(Topology(topics=topics))
    await _sweep(broker, resources)
    there = sorted(
        {resource.topic for resource in resources if resource.group is None and resource.exists} & set(topics)
    )
    if not there:
        return
    group = f"{PASSING}{new_id()}"
    try:
        if since is not None and broker.sheet.seek:
            for topic in there:
                await broker.seek(group, topic, time=since)
        stream = await broker.subscribe(group, there, window=WINDOW)
        try:
            async with aclosing(_received(broker, stream, group, there)) as deliveries:
                async for delivery in deliveries:
                    yield delivery
        finally:
            await stream.aclose()
    finally:
        await _forget(broker, [Resource(topic=topic, group=group, called=f"{group} in {topic}") for topic in there])


async def _forget(broker: Surveyed, places: Sequence[Resource]) -> None:
    """Some brokers take a moment to see that a member has left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while True:
        try:
            await broker.remove(places)
        except BrokerError:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(WAIT)
        else:
            return


async def _received(
    broker: Broker, stream: Stream, group: str, topics: Sequence[str]
) -> AsyncGenerator[Delivery, None]:
    """Until as many came as there were at the beginning."""
    owed = sum(progress.pending for progress in (await broker.progress(group, topics)).values())
    loop = asyncio.get_running_loop()
    heard = loop.time()
    while owed > 0:
        deliveries = await stream.receive(BATCH, WAIT)
        for delivery in deliveries:
            yield delivery
        owed -= len(deliveries)
        if deliveries:
            heard = loop.time()
            await stream.ack(deliveries)
        elif not any(progress.pending for progress in (await broker.progress(group, topics)).values()):
            return
        elif loop.time() - heard > PATIENCE:
            raise BrokerUnavailable(f"{broker.sheet.name} has {owed:,} more frames and hands none out")


async def _sweep(broker: Surveyed, resources: Sequence[Resource]) -> None:
    """Remove readers of traces that were killed: nobody else would, and a log may wait for them."""
    left = [resource for resource in resources if (resource.group or "").startswith(PASSING) and not resource.at_work]
    if left:
        await broker.remove(left)

"""Scene: frames made by hand, waiting for calm when nobody committed them, and what the next start of a service sees."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from posthouse import Service
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.clock import new_id
from posthouse.contracts import event_type_of
from posthouse.events import STRUCTURED, Event, timestamp
from posthouse.testing import Harness
from posthouse.watch.status import Status, status
from tests.kit.waiting import eventually

from .stores import worded

NOW = 1_800_000_000.0
"""Where the harness's clock begins."""


def crafted(
    payload: object,
    *,
    id: str | None = None,
    tenant: str = "t1",
    sequence: int | None = None,
    lineage: int = 1,
    at: float = NOW,
    partition: str | None = None,
) -> Frame:
    """A frame as the owner's relay would have made it; `partition` sends it somewhere else than its key."""
    event_type = event_type_of(type(payload))
    key = event_type.key_of(payload)
    event = Event(
        id=id or new_id(),
        type=event_type.name,
        source="/crafted",
        data=event_type.payload.encode(payload),
        time=timestamp(at),
        tenant=tenant,
        key=key,
        sequence=sequence,
        lineage=lineage,
    )
    encoded = STRUCTURED.encode(event)
    line = None if key is None else f"{tenant}:{key}"
    return Frame(topic=event_type.topic, id=event.id, key=partition or line, headers=encoded.headers, body=encoded.body)


async def calm(harness: Harness, timeout: float = 20.0) -> Status:
    """Wait until nothing moves as far as the clock allows, whether it adds up or not: crafted frames were never
    committed, and refused rows stay in the outbox."""

    async def still() -> bool:
        for service in harness.services:
            counts = await app_of(service).store.counts()
            if sum(counts.unsent.values()) > counts.stuck:
                return False
            for group, topics in app_of(service).opened.topology().groups.items():
                progress = await app_of(service).broker.progress(group, topics)
                if any(p.pending for p in progress.values()):
                    return False
        return harness._idle() and not await harness._due()

    async def twice() -> bool:
        if not await still():
            return False
        await asyncio.sleep(0)
        return await still()

    await eventually(twice, "calm", within=timeout, pause=0.002)
    return await status(harness.services)


async def put(harness: Harness, *frames: Frame) -> None:
    """Store frames straight in the broker, each of them accepted."""
    verdicts = await harness.broker.publish(frames)
    assert [verdict.reason for verdict in verdicts if not verdict.accepted] == []


async def rows(service: Service, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    """What a query finds in the service's own database."""
    async with app_of(service).store.begin() as tx:
        return list(await tx.execute(worded(sql, service.name), parameters))


async def restarted(harness: Harness) -> None:
    """Stop every service and start it again, as a deployment does: what was not acknowledged comes again."""
    harness._stop.set()
    await asyncio.gather(*harness._tasks)
    harness._stop = asyncio.Event()
    harness._tasks = [asyncio.create_task(runtime.run(harness._stop)) for runtime in harness._runtimes]


def states(held: Sequence[object]) -> list[str]:
    """The states of held events, in the order of their numbers."""
    return [str(getattr(event, "state", "")) for event in held]

"""Ours beside the others, in turns: each library in a process and a database of its own, on one server."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale

OURS = "posthouse"
OUTBOXES = ("txoutbox", "faststream_outbox", "python_cqrs")
QUEUES = ("pgqueuer", "procrastinate", "dbos", "eventsourcing")
PEERS = (*OUTBOXES, *QUEUES)
EVENTS = 2_000
PATIENCE = 300.0

Took = dict[str, float]
"""Seconds to add and to work off."""


async def peers(server: BenchServer, scale: Scale, python: Path, names: Sequence[str] = PEERS) -> list[Reading]:
    """Add events with business rows, then work them off: the medians of some rounds, all libraries in each."""
    count = scale.count(EVENTS)
    found: defaultdict[str, list[Took]] = defaultdict(list)
    for _ in range(scale.turns(3)):
        for name in (OURS, *names):
            found[name].append(await _one(server, python, name, count))
    return [
        _beside(
            f"{verb}: {name.replace('_', '-')}",
            [took[step] for took in found[OURS]],
            [took[step] for took in found[name]],
            count,
        )
        for step, verb in (("add", "add"), ("drain", "work off"))
        for name in names
    ]


async def _one(server: BenchServer, python: Path, name: str, count: int) -> Took:
    """One library: ours with this interpreter, the others with that of their environment."""
    with server.database() as url:
        program = sys.executable if name == OURS else str(python)
        command = [program, "-m", "benchmarks.peers.one", name, url, str(count)]
        child = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(PATIENCE):
                output, errors = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            raise RuntimeError(f"{name} did not finish {count:,} events in {PATIENCE:g} s") from None
    if child.returncode:
        raise RuntimeError(f"{name} failed: {errors.decode()[-2000:]}")
    took: Took = json.loads(output.decode().splitlines()[-1])
    return took


def _beside(measure: str, ours: Sequence[float], theirs: Sequence[float], count: int) -> Reading:
    ratio = statistics.median(their / our for our, their in zip(ours, theirs, strict=True))
    return Reading(
        measure=measure,
        ours=count / statistics.median(ours),
        limit=count / statistics.median(theirs),
        ratio=ratio,
        goal=1.0,
        met=ratio >= 1.0,
        unit="events/s",
    )

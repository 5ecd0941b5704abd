"""Latency and throughput over load: the same run at ever more events per second, for the picture."""

from __future__ import annotations

import msgspec

from benchmarks.postgres.load import WAYS, Way, loaded
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Scale, percentile

LOADS = (250, 500, 1_000, 1_500, 2_000, 2_500)
"""Events per second that are offered."""
SECONDS = 3.0


class Point(msgspec.Struct, frozen=True):
    """One way under one load: commits per second that there were, and milliseconds from commit to handler."""

    way: Way
    offered: float
    rate: float
    p50: float
    p99: float


async def sweep(server: BenchServer, scale: Scale) -> list[Point]:
    """Commit to handler through the PostgreSQL broker, under rising load, beside a direct publish and a poll."""
    return [await _point(server, way, load, scale.seconds(SECONDS)) for load in LOADS for way in WAYS]


async def _point(server: BenchServer, way: Way, load: float, seconds: float) -> Point:
    found = await loaded(server, "postgres", way, load, seconds)
    p50, p99 = (percentile(found.delays, rank) * 1000 for rank in (50, 99))
    return Point(way, load, found.rate, p50, p99)

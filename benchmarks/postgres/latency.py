"""How long an event is on its way from the producer's commit to the handler, under open-loop load."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import asyncpg

from benchmarks.postgres.load import BrokerKind, loaded
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale, at_most, delays, percentile

GOALS = {500: {"p50": 3.0, "p99": 10.0}, 2_000: {"p50": 4.0, "p99": 15.0}}
"""The most milliseconds, by events per second."""
KINDS: tuple[BrokerKind, ...] = ("embedded", "postgres")
SECONDS = 4.0


async def latency(server: BenchServer, scale: Scale) -> list[Reading]:
    """Commit to handler at 500 and 2,000 events per second, beside a direct publish and a poll every 100 ms."""
    found = []
    for kind in KINDS:
        for rate, goals in GOALS.items():
            found += await _latency(server, kind, rate, scale.seconds(SECONDS), goals)
    return found


async def _latency(
    server: BenchServer, kind: BrokerKind, rate: int, seconds: float, goals: dict[str, float]
) -> list[Reading]:
    ours = await loaded(server, kind, "outbox", rate, seconds)
    direct = await loaded(server, kind, "direct", rate, seconds)
    poll = await loaded(server, kind, "poll", rate, seconds)
    name = f"latency {rate:,}/s, {kind} broker"
    return [
        *delays(f"{name}, ÷ direct publish", ours.delays, direct.delays, goals),
        *delays(f"{name}, ÷ 100 ms poll", ours.delays, poll.delays, {}),
    ]


async def held_open(server: BenchServer, scale: Scale) -> list[Reading]:
    """The same at 500 events per second with a transaction held open for the whole run, beside one without."""
    seconds = scale.seconds(SECONDS)
    with_it: list[float] = []
    without: list[float] = []
    for _ in range(scale.turns(2)):
        async with transaction_held(server):
            with_it += (await loaded(server, "embedded", "outbox", 500, seconds)).delays
        without += (await loaded(server, "embedded", "outbox", 500, seconds)).delays
    return [
        at_most(
            f"latency with a transaction held ÷ without, p{rank}",
            percentile(with_it, rank) / percentile(without, rank),
            1.5,
            "times",
        )
        for rank in (50, 99)
    ]


@contextlib.asynccontextmanager
async def transaction_held(server: BenchServer) -> AsyncIterator[None]:
    """A transaction that has written, or so the server believes, and does not end."""
    connection = await asyncpg.connect(server.url)
    await connection.execute("BEGIN")
    await connection.execute("SELECT pg_current_xact_id()")
    try:
        yield
    finally:
        await connection.close()

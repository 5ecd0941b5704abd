"""pgqueuer: jobs in a table, taken with SKIP LOCKED, woken by NOTIFY."""

from __future__ import annotations

import json
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.domain.types import QueueExecutionMode
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.job import BUSINESS, CONNECTIONS, CREATE, Countdown, key, payload, shared


async def prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(CREATE)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def add(url: str, count: int) -> float:
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    queues = [Queries(AsyncpgDriver(connection)) for connection in connections]

    async def once(at: int, number: int) -> None:
        async with connections[at].transaction():
            await connections[at].execute(BUSINESS, key(number), number)
            await queues[at].enqueue("placed", json.dumps(payload(number)).encode())

    took = await shared(range(CONNECTIONS), count, once)
    for connection in connections:
        await connection.close()
    return took


async def drain(url: str, count: int) -> float:
    connection = await asyncpg.connect(url)
    worker = PgQueuer(AsyncpgDriver(connection))
    countdown = Countdown(count)

    @worker.entrypoint("placed")
    async def placed(job: Job) -> None:
        json.loads(job.payload or b"{}")
        countdown()

    await worker.qm.run(batch_size=500, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))
    await connection.close()
    return countdown.took

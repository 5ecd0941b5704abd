"""procrastinate: tasks in a table, with a lock for each key so that they run in order."""

from __future__ import annotations

import procrastinate
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers.job import CONNECTIONS, CREATE, Countdown, key, payload, shared

BUSINESS = "INSERT INTO placed (order_id, total) VALUES (%s, %s)"


def app_on(url: str) -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=2 * CONNECTIONS))


async def prepare(url: str) -> None:
    async with app_on(url).open_async() as app:
        await app.schema_manager.apply_schema_async()
    async with AsyncConnectionPool(url, open=False) as pool, pool.connection() as connection:
        await connection.execute(CREATE)


async def add(url: str, count: int) -> float:
    async with (
        app_on(url).open_async() as app,
        AsyncConnectionPool(url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False) as pool,
    ):

        async def once(_: int, number: int) -> None:
            async with pool.connection() as connection, connection.transaction():
                await connection.execute(BUSINESS, (key(number), number))
                job = app.configure_task("placed", lock=key(number), connection=connection)
                await job.defer_async(order=payload(number))

        return await shared(range(CONNECTIONS), count, once)


async def drain(url: str, count: int) -> float:
    app = app_on(url)
    countdown = Countdown(count)

    @app.task(name="placed")
    async def placed(order: dict[str, str | int]) -> None:
        countdown()

    async with app.open_async():
        await app.run_worker_async(
            wait=False, concurrency=CONNECTIONS, install_signal_handlers=False, delete_jobs="successful"
        )
    return countdown.took

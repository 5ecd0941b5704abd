"""What a test on PostgreSQL costs once the database is there, counted in what does not depend on how busy the machine is."""

from __future__ import annotations

import asyncpg

from posthouse import Event, Payload, Service, Tx
from posthouse.testing import Harness
from posthouse.testing.scratch import ScratchDatabase

# Sessions of a database, as the server counts them.
COUNTED = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"


class OrderPlaced(Payload):
    order_id: str


async def test_a_test_opens_no_more_than_two_connections(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    shop = Service("shop")
    placed = shop.event("order.placed.v1", key="order_id")(OrderPlaced)

    @shop.on(placed)
    async def pack(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute("INSERT INTO invoice (order_id) VALUES ($1)", (event.data.order_id,))

    async def story() -> None:
        async with Harness(shop, store=posthouse_store) as harness:
            await harness.publish(placed(order_id="o1"))
            await harness.settled()
            assert len(await harness.published(placed)) == 1

    await story()
    connection = await asyncpg.connect(posthouse_database.url)
    try:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        before = await connection.fetchval(COUNTED)
        await story()
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        after = await connection.fetchval(COUNTED)
    finally:
        await connection.close()
    assert 1 <= after - before <= 2

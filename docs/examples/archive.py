"""Every event is archived, read again, verified, and asked in SQL."""

import asyncio
import logging
from pathlib import Path

from posthouse import App, Service
from posthouse.history.archive import Range
from posthouse.history.archive.places import open_place
from posthouse.history.archive.querying import query
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.archive.verifying import verify
from posthouse.settings import Settings

logging.disable(logging.WARNING)
WHERE = f"file://{Path.cwd()}/archive"

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str
    total_cents: int


app = App(shop, archive=WHERE, settings=Settings(archive=ArchiveSettings(every=0.2)))


async def main() -> None:
    async with app.running():
        async with shop.transaction(tenant="t1") as tx:
            for number in range(6):
                tx.publish(OrderPlaced(order_id=f"o{number % 2}", total_cents=100 * number))
        archive = app.archive
        assert archive is not None
        for _ in range(600):
            if await archive.count(Range()) == 6:
                break
            await asyncio.sleep(0.05)
        async for events in archive.read(Range(tenants=["t1"], keys=["o1"])):
            for event in events:
                print(event.key, event.sequence, event.type, len(event.frame.body) > 0)
    found = verify(open_place(WHERE))
    print("sound:", found.sound, found.events)
    names, rows = query(open_place(WHERE), "SELECT key, count(*) AS events FROM events GROUP BY key ORDER BY key")
    print(names, rows)


asyncio.run(main())

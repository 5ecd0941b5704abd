"""What a hotel does again and again: the night audit, and reminders for each house of a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime

from posthouse import Payload, Run, Service, Tx, app_of
from posthouse.testing import Harness

hotel = Service("hotel")
reminded: list[str] = []


@hotel.event("day.closed.v1")
class DayClosed(Payload):
    """The night audit is done."""

    moment: datetime
    missed: int


@hotel.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS house (tenant TEXT)")


@hotel.every("0 6 * * *", tz="Asia/Kabul")
async def night_audit(run: Run, tx: Tx) -> DayClosed:
    """Close the day that has ended."""
    return DayClosed(moment=run.moment, missed=run.missed)


async def houses(tx: Tx) -> Collection[str]:
    return [str(tenant) for (tenant,) in await tx.execute("SELECT tenant FROM house")]


@hotel.every("30 8 * * MON-FRI", tz="Asia/Kabul", tenants=houses, missed="skip")
async def remind(run: Run, tx: Tx) -> None:
    reminded.append(f"{run.tenant} was reminded for {run.moment:%a %d %H:%M}")


async def main() -> None:
    async with Harness(hotel) as harness:  # Friday, 15 January 2027, 12:30 in Kabul
        async with hotel.transaction() as tx:
            await tx.execute("INSERT INTO house VALUES ('kabul'), ('herat')")
        await harness.advance(3 * 24 * 3600)  # from moment to moment
        harness.clock.advance(2 * 24 * 3600)  # nobody runs for two days
        await harness.settled()
        for event in await harness.published(DayClosed):
            print(f"closed for {event.data.moment:%d %H:%M}, {event.data.missed} missed")
        print(*sorted(reminded), sep="\n")
        await app_of(hotel).schedules.pause("night_audit", by="zahra", why="stocktaking")
        await harness.advance(24 * 3600)
        print(len(await harness.published(DayClosed)), "days closed while it is paused")


if __name__ == "__main__":
    asyncio.run(main())

"""A service that calls a vendor, and dies in the middle of the first call, or right after it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of

desk = Service("desk")
CALLS = Path("calls.txt")


@desk.event("charge.wanted.v1", key="order_id")
class ChargeWanted(Payload):
    """Somebody is to pay."""

    order_id: str


@desk.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS charge (order_id TEXT, receipt TEXT)")


def charge(event: Event[ChargeWanted]) -> str:
    """The vendor writes down what it is asked; the first time, this process does not live to hear the answer."""
    with CALLS.open("a") as book:
        book.write(f"{event.id} {event.data.order_id}\n")
    if event.data.order_id == "o1" and CALLS.read_text().count(event.id) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"receipt {event.data.order_id}"


@desk.on(ChargeWanted, policy=Policy(first_delay=0.1), calling=charge)
async def charged(event: Event[ChargeWanted], tx: Tx, receipt: str) -> None:
    await tx.execute("INSERT INTO charge VALUES (?, ?)", (event.data.order_id, receipt))


async def main(publish: bool) -> None:
    async with desk.running():
        if publish:
            async with desk.transaction("t1") as tx:
                for number in (1, 2, 3):
                    tx.publish(ChargeWanted(order_id=f"o{number}"))
        for _ in range(600):
            async with app_of(desk).store.begin() as tx:
                if (await tx.execute("SELECT count(*) FROM charge")).scalar() == 3:
                    return
            await asyncio.sleep(0.05)
        raise SystemExit("not everything was charged")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] == "publish"))

"""A worker whose handler never comes back: `python -m tests.integration.standing_member FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from posthouse import App, Event, Payload, Service, Tx

market, till = Service("market"), Service("till")


@market.event("sale.made.v1", key="key")
class Sold(Payload):
    key: str
    stuck: bool = False


@till.on(Sold)
async def book(event: Event[Sold], tx: Tx) -> None:
    await asyncio.sleep(3600 if event.data.stuck else 0)


def app_in(folder: Path) -> App:
    return App(market, till, store=f"sqlite:///{folder / 'market.db'}", broker=f"embedded:///{folder / 'log.db'}")


if __name__ == "__main__":
    asyncio.run(app_in(Path(sys.argv[1])).run())

"""Log lines that know their event, and show nothing that is personal."""

import asyncio
import io
import json
import logging
from typing import Annotated

from posthouse import App, Event, Payload, Personal, Service
from posthouse.edges.correlation import correlated
from posthouse.watch.logs import configure

lines = io.StringIO()  # instead of stderr, to look at them below
configure(level="info", as_json=True, stream=lines)

log = logging.getLogger("shop.mail")
orders = Service("orders")
App(orders, store="sqlite://", broker="memory://")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    email: Annotated[str, Personal("contact")]


sent = asyncio.Event()


@orders.on(OrderPlaced)
async def send_mail(event: Event[OrderPlaced]) -> None:
    log.info("mail to %s, about %s", event.data.email, event.data, extra={"template": "thanks"})
    sent.set()


async def main() -> None:
    async with orders.running():
        with correlated("checkout-17"):
            async with orders.transaction(tenant="t1") as tx:
                tx.publish(OrderPlaced(order_id="o1", email="ada@example.com"))
        await sent.wait()


asyncio.run(main())
logging.shutdown()
[line] = [json.loads(line) for line in lines.getvalue().splitlines() if "shop.mail" in line]
for name, value in line.items():
    if name not in ("time", "event_id"):
        print(f"{name}: {value}")

"""A service that may not read, and a fact that is not its own to say."""

import asyncio

from posthouse import App, Event, Payload, Rights, RuleBroken, Service, Tx
from posthouse.errors import ConfigurationError

orders, billing = Service("orders", namespace="shop"), Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...


rights = Rights(
    read={"shop.orders.*": ["ledger"]},  # and the owner; of other topics whoever declares a handler
    tenants={"billing": ["eu-*"]},  # for whom it may publish; others for all
)


async def main() -> None:
    app = App(billing, rights=rights)
    try:
        async with app.running():
            pass
    except ConfigurationError as error:
        print(error)
    try:
        async with billing.transaction("eu-1") as tx:
            tx.publish(OrderPlaced(order_id="o1"))
    except RuleBroken as error:
        print(error)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())

"""Rules at publish: what may not go out is refused before the commit, with the name of the rule."""

import asyncio

from posthouse import App, Payload, RuleBroken, Rules, Seam, Service

orders = Service("orders", namespace="shop", residency="eu")


@orders.event("order.placed.v1", key="order_id", retention="cold")
class OrderPlaced(Payload):
    order_id: str


@orders.event("catalogue.changed.v1", retention="cold")
class CatalogueChanged(Payload):
    version: int


@orders.event("week.counted.v1", cross_tenant=True, retention="cold")
class WeekCounted(Payload):
    orders_by_tenant: dict[str, int]


rules = Rules(
    platform=["shop.orders.catalogue.*"],
    cross_tenant=["shop.orders.week"],
    region="europe-west1",
    residency={"eu": ["europe-west1", "europe-west4"]},
    retention={"shop.orders.*": "cold"},
)
app = App(orders, seam=Seam(rules=rules))


async def main() -> None:
    async with orders.transaction(tenant="t1") as tx:
        tx.publish(OrderPlaced(order_id="o1"))
        tx.publish(WeekCounted(orders_by_tenant={"t1": 1, "t2": 5}))
    async with orders.transaction(tenant="platform") as tx:
        tx.publish(CatalogueChanged(version=2))
    try:
        async with orders.transaction(tenant="platform") as tx:
            tx.publish(CatalogueChanged(version=3))
            tx.publish(OrderPlaced(order_id="o2"))
    except RuleBroken as broken:
        print(broken.rule)
    print("committed:", sum((await app.store.counts()).committed.values()))
    await app.aclose()


asyncio.run(main())

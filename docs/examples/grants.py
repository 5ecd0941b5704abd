"""Ada replays with a grant that grace approved, and no more than it is for."""

import asyncio

from posthouse import App, Event, Payload, Policy, Rights, Service, app_of
from posthouse.errors import DeskError, GrantNeeded
from posthouse.store import Scope
from posthouse.testing import Harness
from posthouse.trust.rights import Asked, signed_in

shop = Service("shop")
App(shop, rights=Rights(grants=True))


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced, policy=Policy(max_attempts=1))
async def bill(event: Event[OrderPlaced]) -> None:
    raise ValueError("no money")


async def main() -> None:
    async with Harness(shop) as harness:
        await harness.publish(OrderPlaced(order_id="o1"))
        await harness.advance(1)
        [dead], grants = await harness.held(shop), app_of(shop).grants
        try:
            await shop.held.retry(dead.id, by="ada")
        except GrantNeeded as error:
            print(error)
        with signed_in(True):  # a console says so of whoever did
            asked = Asked(service="shop", scope=Scope(consumer="shop"), minutes=30, most=100, rate=10.0)
            grant = await grants.request(asked, by="ada", why="ticket 7: billing was down")
            try:
                await grants.approve(grant.id, by="Ada")
            except DeskError as error:
                print(error)
            await grants.approve(grant.id, by="grace")
            await shop.held.retry(dead.id, by="ada", why="ticket 7")
        grant = await grants.get(grant.id)
        print(f"{grant.state}, {grant.used} of {grant.most} used")


if __name__ == "__main__":
    asyncio.run(main())

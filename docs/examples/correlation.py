"""One id for a request: in its answer, in its event and all that follows, in calls to other services."""

import asyncio

import httpx
from fastapi import FastAPI, Request

from posthouse import App, Event, Payload, Service, Tx
from posthouse.edges.correlation import AsgiCorrelation, carry, correlated

vendor = FastAPI()
vendor.add_middleware(AsgiCorrelation, trusted=["127.0.0.0/8"])


@vendor.post("/charges")
async def charge(request: Request) -> None:
    print("the vendor's service was called for", request.headers["X-Correlation-ID"])


api = FastAPI()
api.add_middleware(AsgiCorrelation, trusted=["127.0.0.0/8", "10.0.0.0/8"])
orders = Service("orders")
App(orders, store="sqlite:///orders.db", broker="memory://")
client = httpx.AsyncClient(
    event_hooks={"request": [carry]}, transport=httpx.ASGITransport(vendor), base_url="http://vendor"
)


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@api.post("/orders/{order_id}")
async def place(order_id: str) -> None:
    async with orders.transaction(tenant="t1") as tx:
        tx.publish(OrderPlaced(order_id=order_id))  # its correlation is the request's


async def call(event: Event[OrderPlaced]) -> None:
    await client.post("/charges")  # it carries the event's


applied = asyncio.Event()


@orders.on(OrderPlaced, calling=call)
async def pay(event: Event[OrderPlaced], tx: Tx, answer: None) -> None:
    print("applied for", event.correlation)
    applied.set()


async def nightly() -> None:
    with correlated("nightly-2026-11-16", tenant="t1"):
        async with orders.transaction() as tx:
            tx.publish(OrderPlaced(order_id="o2"))


async def main() -> None:
    async with orders.running(), httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as user:
        answer = await user.post("/orders/o1", headers={"X-Correlation-ID": "checkout-17"})
        await applied.wait()
        print("answered for", answer.headers["X-Correlation-ID"])
        applied.clear()
        await nightly()
        await applied.wait()
    await client.aclose()


asyncio.run(main())

"""A FastAPI application that Google Pub/Sub pushes events to."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route

from posthouse import App, Event, Payload, Service, Tx
from posthouse.edges.keys import GOOGLE
from posthouse.edges.push import push_endpoint

ENDPOINT = "https://billing.example/push"
ACCOUNT = "push@my-project.iam.gserviceaccount.com"

billing = Service("billing", namespace="shop")
App(
    billing,
    store=os.environ.get("BILLING_STORE", "sqlite:///billing.db"),
    broker=f"{os.environ.get('BILLING_BROKER', 'pubsub://my-project?lease=60')}&push={ENDPOINT}&push_account={ACCOUNT}",
)


@billing.external("shop.orders.order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (order_id TEXT PRIMARY KEY)")


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    await tx.execute("INSERT INTO invoice VALUES (:order_id)", {"order_id": event.data.order_id})


push = push_endpoint(
    billing,
    audience=ENDPOINT,
    service_account=ACCOUNT,
    keys_url=os.environ.get("PUSH_KEYS", GOOGLE),  # elsewhere only in tests
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with billing.running():  # the relay, timers, and the retries of held events
        yield


app = FastAPI(lifespan=lifespan)
app.router.routes.append(Route("/push", push, methods=["POST"]))

"""`billing` behind uvicorn, in a process of its own: `python -m tests.integration.push_member <folder> <port> <keys>`."""

from __future__ import annotations

import sys

import uvicorn

from posthouse import App, Event, Service, Tx
from posthouse.edges.push import PushEndpoint, push_endpoint
from tests.kit.servers.issuer import ACCOUNT, AUDIENCE
from tests.kit.shop import OrderPlaced


def made(folder: str) -> Service:
    billing = Service("billing", namespace="shop")
    App(billing, store=f"sqlite:///{folder}/billing.db", broker=f"embedded:///{folder}/log.db")

    @billing.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS invoice (id INTEGER PRIMARY KEY, order_id TEXT, number INTEGER)")

    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)

    @billing.on(OrderPlaced)
    async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO invoice (order_id, number) VALUES (?, ?)", (event.data.order_id, event.data.number)
        )

    return billing


def endpoint(folder: str, keys: str) -> PushEndpoint:
    return push_endpoint(
        made(folder), audience=AUDIENCE, service_account=ACCOUNT, project="shop", keys_url=keys, at_once=4
    )


if __name__ == "__main__":
    uvicorn.run(endpoint(sys.argv[1], sys.argv[3]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")

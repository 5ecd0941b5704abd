"""Health endpoints: what an orchestrator asks, in two lines each; and all pages of Posthouse in one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response

from posthouse import App, Payload, Service
from posthouse.health import Health
from posthouse.watch.asgi import pages

shop = Service("shop")
app = App(shop)


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with shop.running():
        yield


web = FastAPI(lifespan=lifespan)
web.mount("/posthouse", pages(app))


@web.get("/live")
async def live(response: Response) -> bool:
    response.status_code = 200 if (alive := shop.health().live) else 503
    return alive


@web.get("/ready")
async def ready(response: Response) -> Health:
    response.status_code = 200 if (health := shop.health()).ready else 503
    return health

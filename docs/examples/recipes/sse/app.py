"""A board of rooms that is always right: FastAPI, a read model, and a page that hears what changes."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse
from starlette.routing import Mount

from posthouse import App, Event, Model, Payload, Service
from posthouse.edges.receipts import saying
from posthouse.edges.sse import sse_endpoint

HERE = Path(__file__).parent
SESSIONS = {"s-ada": "hotel-1", "s-bob": "hotel-2"}  # yours: whoever is logged in, and for which tenant

rooms = Service("rooms", namespace="hotel")
App(rooms, store=os.environ.get("ROOMS_STORE", "sqlite:///rooms.db"), broker=os.environ.get("ROOMS_BROKER"))


@rooms.event("room.marked.v1", key="room")
class RoomMarked(Payload):
    room: str
    state: str


@rooms.event("board.changed.v1", key="room")
class BoardChanged(Payload):
    room: str
    state: str


board = rooms.projection("board", publishes=[BoardChanged])


@board.setup
async def tables(model: Model) -> None:
    await model.execute(
        f"CREATE TABLE {model.table('room')} (tenant TEXT, room TEXT, state TEXT, PRIMARY KEY (tenant, room))"
    )


@board.on(RoomMarked)
async def marked(event: Event[RoomMarked], model: Model) -> None:
    await model.execute(
        f"INSERT INTO {model.table('room')} VALUES (:tenant, :room, :state)"
        " ON CONFLICT (tenant, room) DO UPDATE SET state = excluded.state",
        {"tenant": event.tenant, "room": event.data.room, "state": event.data.state},
    )
    model.publish(BoardChanged(room=event.data.room, state=event.data.state))  # commits with the row above


def tenant_of(scope: Any) -> str | None:
    return SESSIONS.get(Request(scope).cookies.get("session", ""))


def logged_in(request: Request) -> str:
    tenant = tenant_of(request.scope)
    if tenant is None:
        raise HTTPException(401)
    return tenant


stream = sse_endpoint(rooms, events=[BoardChanged], tenant=tenant_of, show=lambda event: event.data, reads=[board])


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with rooms.running():
        yield


app = FastAPI(lifespan=lifespan)
Tenant = Annotated[str, Depends(logged_in)]


@app.get("/")
def page() -> FileResponse:
    return FileResponse(HERE / "page.html")


@app.get("/page.js")
def script() -> FileResponse:
    return FileResponse(HERE / "page.js")


@app.get("/rooms")
async def all_rooms(tenant: Tenant) -> dict[str, str]:
    async with rooms.transaction(tenant) as tx:
        table = await board.table(tx, "room")
        found = await tx.execute(f"SELECT room, state FROM {table} WHERE tenant = :tenant", {"tenant": tenant})
        return {str(room): str(state) for room, state in found}


@app.put("/rooms/{room}")
async def mark(room: str, state: str, tenant: Tenant) -> dict[str, str]:
    async with rooms.transaction(tenant) as tx:
        tx.publish(RoomMarked(room=room, state=state))
        said = saying(tx)
    return {"receipt": await said.receipt()}


app.router.routes.append(Mount("/stream", stream))

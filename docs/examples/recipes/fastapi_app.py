"""FastAPI and SQLAlchemy: a request writes a row and says a fact in one session; a handler gets a session too."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from posthouse import App, Event, Payload, Service

URL = os.environ["SHOP_DATABASE"]  # postgresql://shop@db/shop
engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:", 1))
sessions = async_sessionmaker(engine)
shop = Service("shop")
App(shop, store=URL, broker=URL)  # or any other that every host reaches


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    order_id: Mapped[str] = mapped_column(primary_key=True)


class Parcel(Base):
    __tablename__ = "parcels"
    order_id: Mapped[str] = mapped_column(primary_key=True)


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.event("parcel.packed.v1", key="order_id")
class ParcelPacked(Payload):
    order_id: str


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with shop.running():  # or only=["relay"], with the consumers in a process of their own
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order_id}")
async def place(order_id: str) -> dict[str, str]:
    async with sessions.begin() as session:
        session.add(Order(order_id=order_id))
        await shop.outbox.add(session, OrderPlaced(order_id=order_id), tenant="t1")
    return {"placed": order_id}


@shop.on(OrderPlaced)
async def pack(event: Event[OrderPlaced], session: AsyncSession) -> ParcelPacked:
    session.add(Parcel(order_id=event.data.order_id))
    return ParcelPacked(order_id=event.data.order_id)

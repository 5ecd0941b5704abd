"""A shop with FastAPI and asynchronous SQLAlchemy: an order comes in, a parcel is packed."""

import os

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from posthouse import App, Event, Payload, Service
from posthouse.edges.correlation import AsgiCorrelation

URL = os.environ["DATABASE_URL"]  # postgresql://shop@db/shop
engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:", 1))
sessions = async_sessionmaker(engine)
app = FastAPI()
app.add_middleware(AsgiCorrelation)
shop = Service("shop")
App(shop, store=URL, broker=URL)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    order_id: Mapped[str] = mapped_column(primary_key=True)


class Parcel(Base):
    __tablename__ = "parcels"
    number: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@app.post("/orders/{order_id}")
async def place(order_id: str) -> dict[str, str]:
    async with sessions.begin() as session:
        session.add(Order(order_id=order_id))
        await shop.outbox.add(session, OrderPlaced(order_id=order_id), tenant="t1")
    return {"placed": order_id}


@shop.on(OrderPlaced)
async def pack(event: Event[OrderPlaced], session: AsyncSession) -> None:
    session.add(Parcel(order_id=event.data.order_id))

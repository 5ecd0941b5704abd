"""A shop with Flask and SQLAlchemy: an order comes in, a parcel is packed."""

import os

from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from posthouse import App, Event, Payload, Service
from posthouse.edges.correlation import WsgiCorrelation

URL = os.environ["DATABASE_URL"]  # postgresql://shop@db/shop
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = sessionmaker(engine)
app = Flask(__name__)
app.wsgi_app = WsgiCorrelation(app.wsgi_app)  # type: ignore[method-assign]  # as Flask's own guide does
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


@app.cli.command("init-db")
def init_db() -> None:
    """Make the tables."""
    Base.metadata.create_all(engine)


@app.post("/orders/<order_id>")
def place(order_id: str) -> dict[str, str]:
    with sessions.begin() as session:
        session.add(Order(order_id=order_id))
        shop.outbox.add_now(session, OrderPlaced(order_id=order_id), tenant="t1")
    return {"placed": order_id}


@shop.on(OrderPlaced)
def pack(event: Event[OrderPlaced], session: Session) -> None:
    session.add(Parcel(order_id=event.data.order_id))

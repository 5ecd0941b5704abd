"""The outbox joins a transaction that you already have: four ways, and adding never commits."""

import asyncio
import sqlite3
from contextlib import closing

import aiosqlite
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from posthouse import App, Payload, Service, app_of

orders = Service("orders", namespace="shop")
App(orders, store="sqlite:///shop.db")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


INSERT = "INSERT INTO orders VALUES ('{}')"


def with_sqlite3() -> None:
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute(INSERT.format("o1"))
        orders.outbox.add_now(connection, OrderPlaced(order_id="o1"), tenant="t1")


def with_session() -> None:
    engine = create_engine("sqlite:///shop.db")
    with Session(engine) as session, session.begin():
        session.execute(text(INSERT.format("o2")))
        orders.outbox.add_now(session, OrderPlaced(order_id="o2"), tenant="t1")
    engine.dispose()


async def with_aiosqlite() -> None:
    async with aiosqlite.connect("shop.db") as connection:
        await connection.execute(INSERT.format("o3"))
        await orders.outbox.add(connection, OrderPlaced(order_id="o3"), tenant="t1")
        await connection.commit()


async def with_async_session() -> None:
    engine = create_async_engine("sqlite+aiosqlite:///shop.db")
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text(INSERT.format("o4")))
        await orders.outbox.add(session, OrderPlaced(order_id="o4"), tenant="t1")
    await engine.dispose()


async def main() -> None:
    await app_of(orders).open()  # makes the tables; in production: posthouse db upgrade
    async with orders.transaction("t1") as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS orders (order_id TEXT)")
    await asyncio.to_thread(with_sqlite3)
    await asyncio.to_thread(with_session)
    await with_aiosqlite()
    await with_async_session()
    print("waiting for the relay:", (await orders.host.store.counts()).unsent)
    await orders.aclose()


asyncio.run(main())

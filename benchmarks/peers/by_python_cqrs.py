"""python-cqrs: an outbox on a SQLAlchemy session, and a producer that updates the status of each row."""

from __future__ import annotations

import logging

from cqrs import NotificationEvent, OutboxedEventMap, SqlAlchemyOutboxedEventRepository
from cqrs.message_brokers.producer import EventProducer
from cqrs.message_brokers.protocol import Message
from cqrs.outbox.sqlalchemy import Base
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from benchmarks.peers.job import CONNECTIONS, CREATE, Countdown, key, payload, shared

BUSINESS = text("INSERT INTO placed (order_id, total) VALUES (:order_id, :total)")


class Placed(BaseModel):
    order_id: str
    total_cents: int
    note: str


OutboxedEventMap.register("order.placed", NotificationEvent[Placed])
logging.getLogger("cqrs").setLevel(logging.WARNING)


class Nowhere:
    """A message broker that keeps nothing."""

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown

    async def send_message(self, message: Message) -> None:
        self._countdown()


def engine_of(url: str) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=2 * CONNECTIONS)


async def prepare(url: str) -> None:
    engine = engine_of(url)
    async with engine.begin() as connection:
        await connection.execute(text(CREATE))
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


async def add(url: str, count: int) -> float:
    engine = engine_of(url)
    sessions = async_sessionmaker(engine)

    async def once(_: int, number: int) -> None:
        async with sessions() as session:
            await session.execute(BUSINESS, {"order_id": key(number), "total": number})
            repository = SqlAlchemyOutboxedEventRepository(session)
            placed = Placed.model_validate(payload(number))
            repository.add(NotificationEvent[Placed](event_name="order.placed", topic="orders", payload=placed))
            await repository.commit()

    took = await shared(range(CONNECTIONS), count, once)
    await engine.dispose()
    return took


async def drain(url: str, count: int) -> float:
    engine = engine_of(url)
    countdown = Countdown(count)
    async with async_sessionmaker(engine)() as session:
        repository = SqlAlchemyOutboxedEventRepository(session)
        producer = EventProducer(Nowhere(countdown), repository)
        async for batch in producer.event_batch_generator(batch_size=500):
            for event in batch:
                await producer.send_message(event)
            await repository.commit()
            if countdown.done.is_set():
                break
    await engine.dispose()
    return countdown.took

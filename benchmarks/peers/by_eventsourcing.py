"""eventsourcing: events appended to aggregates, and a projection that tracks each event it has seen."""

from __future__ import annotations

import asyncio
import time
from functools import singledispatchmethod
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner

from benchmarks.peers.job import PATIENCE, in_threads, payload

applied = 0


class Order(Aggregate):
    @event("Placed")
    def __init__(self, number: int, order: dict[str, str | int]) -> None:
        self.number = number

    @staticmethod
    def create_id(number: int, order: dict[str, str | int]) -> UUID:
        return uuid5(NAMESPACE_URL, str(number))


class Orders(Application[UUID]):
    def place(self, number: int) -> None:
        self.save(Order(number, payload(number)))


class Seen(PostgresTrackingRecorder):
    """A view that only remembers how far it is."""


class Counting(Projection[Seen]):
    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        global applied
        self.view.insert_tracking(tracking)
        applied += 1


def env_of(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": parts.path.removeprefix("/"),
        "POSTGRES_HOST": parts.hostname or "",
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": parts.username or "",
        "POSTGRES_PASSWORD": parts.password or "unused",
        "POSTGRES_POOL_SIZE": "8",
    }


async def prepare(url: str) -> None:
    Orders(env_of(url)).close()


async def add(url: str, count: int) -> float:
    orders = Orders(env_of(url))
    took = await asyncio.to_thread(in_threads, count, orders.place)
    orders.close()
    return took


async def drain(url: str, count: int) -> float:
    return await asyncio.to_thread(_drain, url, count)


def _drain(url: str, count: int) -> float:
    began = time.perf_counter()
    with ProjectionRunner(application_class=Orders, projection_class=Counting, view_class=Seen, env=env_of(url)):
        while applied < count:
            if time.perf_counter() > began + PATIENCE:
                raise RuntimeError(f"the projection saw {applied:,} of {count:,} events in {PATIENCE:g} s")
            time.sleep(0.005)
        return time.perf_counter() - began

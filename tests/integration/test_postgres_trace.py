"""Traces and stored histories of a service on PostgreSQL, also where tenants are kept apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from posthouse import App, Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.processes import Saga, Turn, deadline, starts, step, undo
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.histories import assert_replays, dump, histories, load
from posthouse.tracing import Trace, trace
from posthouse.watch.status import drained
from tests.kit.servers.roles import Ground

PATIENCE = 30.0


class Placed(Payload):
    order_id: str


class Invoiced(Payload):
    order_id: str


class Dropped(Payload):
    order_id: str


class Order(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        turn.publish(Placed(order_id=self.order_id))
        turn.set(self.too_slow)

    @undo(begin)
    def drop(self, turn: Turn) -> None:
        turn.publish(Dropped(order_id=self.order_id))

    @deadline(0.5)
    def too_slow(self, turn: Turn) -> None:
        turn.compensate("too slow")

    @step(Invoiced)
    def invoiced(self, event: Event[Invoiced], turn: Turn) -> None:
        """Not the end: the deadline still comes."""


def service_on(store: str | PostgresStore, broker: str) -> Service:
    service = Service("shop")
    App(service, store=store, broker=broker)
    for name, cls in (("placed", Placed), ("invoiced", Invoiced), ("dropped", Dropped)):
        service.event(f"order.{name}.v1", key="order_id")(cls)
    service.saga("order", correlate="order_id")(Order)

    @service.on(Placed)
    async def invoice(event: Event[Placed], tx: Tx) -> Invoiced:
        return Invoiced(order_id=event.data.order_id)

    return service


async def compensated(service: Service, tenant: str = "t1") -> Trace:
    """One saga, from its start to the end, and its trace."""
    async with service.transaction(tenant, correlation="req-1") as tx:
        await service.start_saga(tx, Order(order_id="o1"))
    async with asyncio.timeout(PATIENCE):
        while not all([row.ended async for row in app_of(service).sagas.find()]):
            await drained(service)
        await drained(service)
    return await trace([service], "req-1")


def told(found: Trace) -> list[tuple[int, str, list[str]]]:
    return [
        (
            branch.depth,
            branch.spot.event.type.removeprefix("shop."),
            [f"{heard.consumer} {heard.state}" for heard in found.heard.get(branch.spot.event.id, [])],
        )
        for branch in found.branches
    ]


WHOLE = [
    (0, "order.placed.v1", ["shop applied"]),
    (1, "order.invoiced.v1", ["shop.order applied"]),
    (0, "saga.deadline_passed.v1", ["shop.order applied"]),
    (1, "order.dropped.v1", []),
]


async def test_a_trace_and_its_histories_come_from_one_database(postgres_url: str) -> None:
    service = service_on(postgres_url, postgres_url)
    await app_of(service).store.upgrade()
    async with service.running():
        found = await compensated(service)
        assert told(found) == WHOLE
        assert [heard.saga.turn for all_ in found.heard.values() for heard in all_ if heard.saga] == [2, 3]
        stored = dump([view async for view in histories(service)])
    await assert_replays(service, load(stored))


async def test_a_trace_sees_every_tenant_where_they_are_kept_apart(ground: Ground, tmp_path: Path) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    service = service_on(store, f"embedded:///{tmp_path}/log.db?single_host=true")
    async with service.running():
        assert told(await compensated(service, tenant="a")) == WHOLE

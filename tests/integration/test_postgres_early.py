"""Events that come too early, on PostgreSQL: starts beside them, with two processes; and tenants that are kept apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from posthouse import App, Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.errors import Reject
from posthouse.processes import Saga, Turn, join, on, starts, step
from posthouse.store import HeldFilter
from posthouse.store.sagas import SagaRow
from posthouse.stores.postgres import PostgresStore
from posthouse.watch.status import drained
from tests.kit.servers.roles import Ground

PATIENCE = 30.0


class Paid(Payload):
    order_id: str


class Packed(Payload):
    order_id: str
    torn: bool = False


class Sent(Payload):
    order_id: str


class Labelled(Payload):
    order_id: str


class Order(Saga):
    order_id: str
    seen: str = ""

    @starts
    def begin(self, turn: Turn) -> None:
        self.seen += "begin "

    @step(Paid)
    def paid(self, event: Event[Paid], turn: Turn) -> None:
        self.seen += "paid "

    @step(Packed, after=paid)
    def packed(self, event: Event[Packed], turn: Turn) -> None:
        if event.data.torn:
            raise Reject("torn")
        self.seen += "packed "

    @step(Sent, after=packed)
    def sent(self, event: Event[Sent], turn: Turn) -> None:
        self.seen += "sent "

    @on(Labelled, early_within=1.0)
    def labelled(self, event: Event[Labelled], turn: Turn) -> None: ...

    @join(paid, sent)
    def all_done(self, turn: Turn) -> None:
        turn.complete()


def service_on(store: str | PostgresStore, folder: Path) -> Service:
    service = Service("shop")
    App(service, store=store, broker=f"embedded:///{folder}/log.db?single_host=true")
    for name, cls in (("paid", Paid), ("packed", Packed), ("sent", Sent), ("labelled", Labelled)):
        service.event(f"{name}.v1", key="order_id")(cls)
    service.saga("order", correlate="order_id", policy=Policy(first_delay=0.1, last_delay=0.1))(Order)
    return service


async def start(service: Service, id: str, tenant: str = "t1") -> None:
    async with service.transaction(tenant) as tx:
        assert await service.start_saga(tx, Order(order_id=id))


async def say(service: Service, *payloads: object, tenant: str = "t1") -> None:
    for payload in payloads:
        async with service.transaction(tenant) as tx:
            tx.publish(payload)


async def rows(service: Service) -> list[SagaRow]:
    return [row async for row in app_of(service).sagas.find()]


async def test_starts_and_events_that_come_before_them_meet_on_one_row(postgres_url: str, tmp_path: Path) -> None:
    """Two instances of the service, each with its own connections and consumers; 40 races, each in the worst order."""
    first, second = service_on(postgres_url, tmp_path), service_on(postgres_url, tmp_path)
    await app_of(first).store.upgrade()
    async with first.running(), second.running():
        ids = [f"o{number}" for number in range(40)]
        await asyncio.gather(
            *(say((second, first)[n % 2], Packed(order_id=id), Paid(order_id=id)) for n, id in enumerate(ids)),
            *(start((first, second)[n % 2], id) for n, id in enumerate(ids)),
        )
        await say(first, *(Sent(order_id=id) for id in ids))
        async with asyncio.timeout(PATIENCE):
            while not all(row.ended for row in await rows(first)):
                await drained(first)
        found = await rows(first)
        assert len(found) == 40
        assert {row.state for row in found} == {
            f'{{"order_id":"{id}","seen":"begin paid packed sent "}}'.encode() for id in ids
        }
        assert all(not row.waiting and not row.deadlines for row in found)
        assert await app_of(first).store.held.find(HeldFilter()) == []
        async with first.transaction("t1") as tx:
            assert (await tx.execute("SELECT count(*) FROM posthouse.saga_waiting")).scalar() == 0


async def test_what_waits_is_its_tenants_and_ends_as_a_dead_letter(ground: Ground, tmp_path: Path) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    service = service_on(store, tmp_path)
    async with service.running():
        await say(service, Packed(order_id="o1"), tenant="a")
        await say(service, Labelled(order_id="o1"), tenant="b")
        async with asyncio.timeout(PATIENCE):
            while len(await rows(service)) < 2 and not await store.held.find(HeldFilter()):
                await drained(service)
        async with service.transaction("a") as tx:
            assert {tenant for (tenant,) in await tx.execute("SELECT tenant FROM posthouse.saga_waiting")} == {"a"}
        await start(service, "o1", "a")
        await say(service, Paid(order_id="o1"), tenant="a")
        async with asyncio.timeout(PATIENCE):
            while not (dead := await store.held.find(HeldFilter(state="dead"))):
                await drained(service)
        assert [(held.entry.tenant, held.reason) for held in dead] == [("b", "order o1: it waited 1 s for its start")]
        async with asyncio.timeout(PATIENCE):
            while (row := (await rows(service))[0]).steps != ("begin", "paid", "packed"):
                await drained(service)
        assert [(one.tenant, one.status) for one in await rows(service)] == [("a", "running"), ("b", "awaited")], row
        await service.held.skip(dead[0].id)
        async with asyncio.timeout(PATIENCE):
            while len(await rows(service)) > 1:
                await drained(service)
        assert ground.execute("SELECT count(*) FROM posthouse.saga_waiting") == [(0,)]


async def test_what_waits_behind_a_dead_letter_goes_on_when_that_is_given_up(ground: Ground, tmp_path: Path) -> None:
    """The operator works for all tenants, where they are kept apart too."""
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    service = service_on(store, tmp_path)
    async with service.running():
        await say(service, Packed(order_id="o1", torn=True), Packed(order_id="o1"))
        await drained(service)
        await start(service, "o1")
        await say(service, Paid(order_id="o1"))
        async with asyncio.timeout(PATIENCE):
            while not (dead := await store.held.find(HeldFilter(state="dead"))):
                await drained(service)
        (row,) = await rows(service)
        assert [(one.type, one.woken) for one in row.waiting] == [("shop.packed.v1", True), ("shop.packed.v1", False)]
        await service.held.skip(dead[0].id)
        async with asyncio.timeout(PATIENCE):
            while (row := (await rows(service))[0]).steps != ("begin", "paid", "packed"):
                await drained(service)
        assert (row.waiting, row.deadlines) == ((), {})
        assert [held.state for held in await store.held.find(HeldFilter())] == ["skipped"]

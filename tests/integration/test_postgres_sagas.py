"""Sagas on PostgreSQL: several at once, statements that fail inside an undo, and tenants that are kept apart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.processes import Saga, Turn, deadline, on, starts, step, undo
from posthouse.store import HeldFilter
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.stores.postgres import PostgresStore
from posthouse.watch.status import drained
from tests.kit.servers.roles import Ground

PATIENCE = 30.0
POLICY = Policy(first_delay=0.1, last_delay=0.1, max_attempts=4)


class Placed(Payload):
    order_id: str


class Paid(Payload):
    order_id: str


class Lost(Payload):
    order_id: str


class Undone(Payload):
    order_id: str


class Order(Saga):
    order_id: str
    tries: int = 0

    @starts
    def begin(self, turn: Turn) -> None:
        turn.publish(Placed(order_id=self.order_id))
        turn.set(self.expired)

    @undo(begin)
    async def forget(self, turn: Turn) -> None:
        self.tries += 1
        turn.publish(Undone(order_id=self.order_id))
        await turn.execute("INSERT INTO undone (order_id) VALUES ($1)", [self.order_id])

    @deadline(0.5)
    def expired(self, turn: Turn) -> None:
        turn.compensate("expired")

    @step(Paid)
    def paid(self, event: Event[Paid], turn: Turn) -> None:
        turn.complete()

    @on(Lost)
    def lost(self, event: Event[Lost], turn: Turn) -> None:
        turn.compensate("lost")


def service_on(store: str | PostgresStore, folder: Path) -> Service:
    service = Service("shop")
    App(service, store=store, broker=f"embedded:///{folder}/log.db?single_host=true")
    for name, cls in (("placed", Placed), ("paid", Paid), ("lost", Lost), ("undone", Undone)):
        service.event(f"{name}.v1", key="order_id")(cls)
    service.saga("order", correlate="order_id", policy=POLICY)(Order)
    return service


async def with_tables(service: Service) -> None:
    await app_of(service).store.upgrade()
    async with service.transaction("t1") as tx:
        await tx.execute("CREATE TABLE undone (order_id text PRIMARY KEY)")


async def start(service: Service, id: str, tenant: str = "t1") -> bool:
    async with service.transaction(tenant) as tx:
        return bool(await service.start_saga(tx, Order(order_id=id)))


async def say(service: Service, payload: object, tenant: str = "t1") -> None:
    async with service.transaction(tenant) as tx:
        tx.publish(payload)


async def ended(service: Service, wanted: SagaFilter | None = None) -> list[SagaRow]:
    """Every saga, once all have ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            rows = [row async for row in app_of(service).sagas.find(wanted)]
            if rows and all(row.ended for row in rows):
                return rows
            await drained(service)


async def test_a_statement_that_fails_in_an_undo_is_undone_alone_and_tried_again(
    postgres_url: str, tmp_path: Path
) -> None:
    service = service_on(postgres_url, tmp_path)
    await with_tables(service)
    async with service.running():
        await say(service, Placed(order_id="other"))
        async with service.transaction("t1") as tx:
            await tx.execute("INSERT INTO undone VALUES ('o1')")
            await service.start_saga(tx, Order(order_id="o1"))
        await say(service, Lost(order_id="o1"))
        async with asyncio.timeout(PATIENCE):
            while (view := await app_of(service).sagas.show("order", "o1", tenant="t1")).row.status != "compensating":
                await drained(service)
        assert view.row.undoing is not None
        assert "duplicate key" in view.row.undoing.error
        assert b'"tries":0' in view.row.state
        async with service.transaction("t1") as tx:
            await tx.execute("DELETE FROM undone")
        (row,) = await ended(service)
        await drained(service)
        assert (row.status, row.state) == ("compensated", b'{"order_id":"o1","tries":1}')
        committed = (await app_of(service).store.counts()).committed
        assert await app_of(service).store.held.find(HeldFilter()) == []
        assert committed["shop"] == 4  # two placed, one lost, and one undone however often it was said


async def test_a_deadline_and_an_event_have_one_winner_with_two_processes(postgres_url: str, tmp_path: Path) -> None:
    """Two instances of the service, each with its own connections, consumers and timers; 60 races."""
    first, second = service_on(postgres_url, tmp_path), service_on(postgres_url, tmp_path)
    await with_tables(first)
    async with first.running(), second.running():
        for number in range(60):
            async with first.transaction("t1") as tx:
                await first.start_saga(tx, Order(order_id=f"o{number}"))
                tx.publish(Paid(order_id=f"o{number}"), after=random.uniform(0.45, 0.55))
        rows = await ended(first)
        async with asyncio.timeout(PATIENCE):
            while (await app_of(first).store.counts()).timers:
                await drained(first)
        await drained(first)
        for row in rows:
            turns = (await app_of(first).sagas.show("order", row.id, tenant="t1")).history
            inputs = [(turn.input.kind, turn.late) for turn in turns[1:]]
            won = [("event", False)] if row.status == "completed" else [("deadline", False), ("event", True)]
            assert inputs == won, row
            assert [turn.turn for turn in turns] == list(range(1, len(turns) + 1))
        async with first.transaction("t1") as tx:
            undone = {str(id) for (id,) in await tx.execute("SELECT order_id FROM undone")}
        assert undone == {row.id for row in rows if row.status == "compensated"}
        assert {row.status for row in rows} == {"completed", "compensated"}
        assert await app_of(first).store.held.find(HeldFilter()) == []


async def test_of_starts_at_the_same_time_one_succeeds_and_the_others_do_nothing(
    postgres_url: str, tmp_path: Path
) -> None:
    service, other = service_on(postgres_url, tmp_path), service_on(postgres_url, tmp_path)
    await with_tables(service)
    answers = await asyncio.gather(*(start((service, other)[n % 2], "o1") for n in range(8)))
    assert sorted(answers) == [False] * 7 + [True]
    counts = await app_of(service).store.counts()
    assert (counts.committed, counts.timers) == ({"shop": 1}, 1)
    await other.aclose()
    await service.aclose()


async def test_sagas_of_tenants_are_kept_apart_by_the_database(ground: Ground, tmp_path: Path) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    ground.execute(
        "CREATE TABLE public.undone (order_id text)",
        f"GRANT ALL ON public.undone TO {ground.application}",
    )
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    service = service_on(store, tmp_path)
    async with service.running():
        for tenant in ("a", "b"):
            assert await start(service, "o1", tenant)
        await say(service, Paid(order_id="o1"), tenant="a")
        rows = await ended(service)
        assert [(row.tenant, row.status) for row in rows] == [("a", "completed"), ("b", "compensated")]
        async with service.transaction("a") as tx:
            assert await seen(tx, "saga") == {"a"}
            assert await seen(tx, "saga_turn") == {"a"}
        assert await app_of(service).sagas.counts() == {("order", "completed"): 1, ("order", "compensated"): 1}
        assert await store.sagas.purge(-60.0, 10) == 2
        assert ground.execute("SELECT count(*) FROM posthouse.saga_turn") == [(0,)]


async def seen(tx: Tx, table: str) -> set[object]:
    return {tenant for (tenant,) in await tx.execute(f"SELECT tenant FROM posthouse.{table}")}

"""Two tenants' events through relay and consumers, with isolation on: each handler sees the rows of its own tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.store import HeldEvent, HeldFilter, Timer
from posthouse.stores.postgres import PostgresStore
from posthouse.testing import rehost
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import drain
from posthouse.watch.status import status
from tests.kit.running import at_work
from tests.kit.servers.pgbouncer import pooling
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.roles import Ground
from tests.kit.waiting import eventually

TENANTS = ("a", "b")
PEEK = "SELECT DISTINCT tenant FROM invoice UNION SELECT tenant FROM shop.head UNION SELECT tenant FROM shop.held"

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    number: int


@orders.event("order.noted.v1")
class OrderNoted(Payload):
    note: str


@orders.event("order.listed.v1", key="order_id")
class OrderListed(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


seen: dict[str, set[tuple[str, ...]]] = {}
"""By tenant: the tenants whose rows its handlers saw."""
broken: set[str] = set()


async def look(tx: Tx) -> None:
    rows = await tx.execute(PEEK)
    seen.setdefault(tx.tenant, set()).add(tuple(sorted(str(tenant) for (tenant,) in rows)))


@billing.on(OrderPlaced, policy=Policy(max_attempts=2, first_delay=0.02))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    await tx.execute("INSERT INTO invoice VALUES ($1, $2, $3)", (event.tenant, event.data.order_id, event.data.number))
    await look(tx)
    if event.data.order_id in broken:
        raise RuntimeError("the ledger is closed")
    return InvoiceIssued(order_id=event.data.order_id)


@billing.on(OrderNoted, consumer="notes", policy=Policy(grouped=True))
async def note(event: Event[OrderNoted], tx: Tx) -> None:
    await tx.execute("INSERT INTO invoice VALUES ($1, $2, 0)", (event.tenant, event.data.note))
    await look(tx)


@billing.on(OrderListed, consumer="lists")
async def listed(events: list[Event[OrderListed]], tx: Tx) -> None:
    for event in events:
        await tx.execute("INSERT INTO invoice VALUES ($1, $2, 0)", (event.tenant, event.data.order_id))
    await look(tx)


@billing.on(OrderNoted, consumer="thief")
async def thief(event: Event[OrderNoted], tx: Tx) -> None:
    """Writes for another tenant, which the database refuses."""
    if event.data.note == "stolen":
        await tx.execute("INSERT INTO invoice VALUES ('b', 'stolen', 0)")


@pytest_asyncio.fixture
async def isolated(ground: Ground) -> Ground:
    """Our tables and one of the user's, all under the same policy."""
    store = PostgresStore(ground.owner_url, schema="shop")
    await store.upgrade()
    await store.set_roles(ground.application, ground.runtime)
    await store.aclose()
    ground.execute(
        "CREATE TABLE invoice (tenant text NOT NULL, order_id text, number int)",
        "ALTER TABLE invoice ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant ON invoice USING (tenant = NULLIF(current_setting('posthouse.tenant', true), ''))",
        f"GRANT SELECT, INSERT ON invoice TO {ground.application}",
    )
    return ground


def url_of(ground: Ground, **options: str) -> str:
    given = {"schema": "shop", "isolation": "true", "runtime_url": quote(ground.runtime_url, safe=""), **options}
    return f"{ground.application_url}?{'&'.join(f'{name}={value}' for name, value in given.items())}"


@asynccontextmanager
async def running(url: str, *, first: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[None]:
    """Both services at work on one store and one broker; `first` is done before they begin."""
    seen.clear()
    broken.clear()
    clock = SystemClock()
    broker = MemoryBroker(clock=clock)
    before = []
    for service in (orders, billing):
        before.append(rehost(service, store=url, broker=broker, clock=clock))
    runtimes = [await app_of(service).opened.prepare() for service in (orders, billing)]
    if first is not None:
        await first()
    try:
        async with at_work(*(runtime.run for runtime in runtimes)):
            yield
    finally:
        for service, parts in zip((orders, billing), before, strict=True):
            await service.aclose()
            service.hosted_by(parts)


async def settled() -> None:
    """Wait until everything that was said is applied or held."""

    async def quiet() -> bool:
        figures = await status([orders, billing])
        return figures.quiet and figures == await status([orders, billing])

    await eventually(quiet)


async def held(count: int, wanted: HeldFilter) -> list[HeldEvent]:
    """Wait until so many events are held."""

    async def enough() -> tuple[list[HeldEvent]] | None:
        found = list(await app_of(billing).store.held.find(wanted))
        return (found,) if len(found) == count else None

    return (await eventually(enough))[0]


async def invoices(ground: Ground, count: int) -> None:
    async def enough() -> bool:
        return ground.execute("SELECT count(*) FROM invoice") == [(count,)]

    await eventually(enough)


async def publish_for_both() -> None:
    for number in range(5):
        for tenant in TENANTS:
            async with orders.transaction(tenant) as tx:
                tx.publish(OrderPlaced(order_id="o1", number=number))
                tx.publish(OrderNoted(note=f"n{number}"))
                tx.publish(OrderListed(order_id=f"o{number}"))
                tx.publish(OrderListed(order_id="o0"), after=0.05, timer=f"later-{number}")


async def test_no_statement_shows_a_tenants_values_to_whoever_has_the_same_role(isolated: Ground) -> None:
    """What a session ran last stands in `pg_stat_activity` until it runs something else, for all of its role to read."""
    async with running(url_of(isolated)):
        for number in range(5):
            async with orders.transaction("b") as tx:
                tx.publish(OrderPlaced(order_id="secret-of-b", number=number))
            async with orders.transaction("b") as tx:
                await tx.execute("SELECT 1")
                tx.publish(OrderNoted(note="secret-of-b"))
            with psycopg.connect(isolated.application_url) as spy:
                statements = [text for (text,) in spy.execute("SELECT query FROM pg_stat_activity WHERE query <> ''")]
            assert [text for text in statements if "secret-of-b" in text] == []
            assert len(statements) >= 2, "nobody was there to be spied on"
        await invoices(isolated, 10)
        with psycopg.connect(isolated.url) as all_seeing:
            statements = [text for (text,) in all_seeing.execute("SELECT query FROM pg_stat_activity")]
        assert [text for text in statements if "secret-of-b" in text and "spy" not in text] == []


async def test_each_tenants_events_are_applied_and_no_handler_sees_anothers_rows(isolated: Ground) -> None:
    async with running(url_of(isolated)):
        await publish_for_both()
        await settled()
        await invoices(isolated, 40)
        await settled()
    for tenant in TENANTS:
        numbers = isolated.execute(
            f"SELECT number FROM invoice WHERE tenant = '{tenant}' AND order_id = 'o1' AND number >= 0 ORDER BY ctid"
        )
        assert [number for (number,) in numbers if number] == [1, 2, 3, 4]
        assert isolated.execute(f"SELECT count(*) FROM invoice WHERE tenant = '{tenant}'") == [(20,)]
    assert seen == {"a": {("a",)}, "b": {("b",)}}


async def test_events_of_several_tenants_never_share_a_transaction(
    isolated: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """They wait together before anybody takes them; a group of several tenants would fail and be redone one by one."""
    caplog.set_level("INFO", "posthouse.consumer")
    async with running(url_of(isolated), first=publish_for_both):
        await invoices(isolated, 40)
    assert "redone" not in caplog.text
    assert seen == {"a": {("a",)}, "b": {("b",)}}


async def test_a_failing_event_is_held_retried_and_released_within_its_tenant(isolated: Ground) -> None:
    async with running(url_of(isolated)):
        broken.add("o1")
        await publish_for_both()
        dead = await held(2, HeldFilter(state="dead"))
        assert {event.entry.tenant for event in dead} == {"a", "b"}
        broken.clear()
        for event in dead:
            await billing.held.retry(event.id)
        await held(0, HeldFilter())
        await settled()
    for tenant in TENANTS:
        rows = isolated.execute(
            f"SELECT number FROM invoice WHERE tenant = '{tenant}' AND order_id = 'o1' ORDER BY ctid"
        )
        assert [number for (number,) in rows if number] == [1, 2, 3, 4]
    assert seen == {"a": {("a",)}, "b": {("b",)}}


async def test_a_handler_that_writes_for_another_tenant_is_refused_and_its_event_held(isolated: Ground) -> None:
    async with running(url_of(isolated)):
        async with orders.transaction("a") as tx:
            tx.publish(OrderNoted(note="stolen"))
        [refused] = await held(1, HeldFilter(consumer="billing.thief"))
        assert "posthouse.tenant" in refused.error
    assert isolated.execute("SELECT tenant FROM invoice WHERE order_id = 'stolen'") == [("a",)]  # by another consumer


async def test_a_transaction_sees_its_tenant_whatever_the_session_was_left_with(isolated: Ground) -> None:
    """Behind a pooler with one connection, in which another client left a setting."""
    parts = urlsplit(isolated.url)
    name = parts.path.removeprefix("/")
    there = f"host={parts.hostname} port={parts.port or 5432} dbname={name} pool_size=1"
    with pooling(f"app = {there} user={isolated.application}\nrun = {there} user={isolated.runtime}") as port:
        with psycopg.connect(f"postgresql://anybody@127.0.0.1:{port}/app", prepare_threshold=None) as careless:
            careless.execute("SELECT set_config('posthouse.tenant', 'b', false)")
        with psycopg.connect(f"postgresql://anybody@127.0.0.1:{port}/app", prepare_threshold=None) as another:
            assert another.execute("SELECT current_setting('posthouse.tenant')").fetchone() == ("b",)
        store = PostgresStore(
            f"postgresql://anybody@127.0.0.1:{port}/app",
            schema="shop",
            pooler="transaction",
            isolation=True,
            runtime_url=f"postgresql://anybody@127.0.0.1:{port}/run",
        )
        for tenant in TENANTS:
            async with store.begin(tenant=tenant) as tx:
                await tx.execute("INSERT INTO invoice VALUES ($1, 'o1', 1)", (tenant,))
                await store.outbox.append(tx, [row("k", tenant=tenant)])
        for tenant in TENANTS:
            async with store.begin(tenant=tenant) as tx:
                assert await tx.execute("SELECT tenant FROM invoice") == [(tenant,)]
        assert [found.tenant for found in await drain(store)] == ["a", "b"]
        await store.aclose()


async def test_a_session_of_the_pool_carries_nothing_from_one_tenant_to_the_next(isolated: Ground) -> None:
    store = PostgresStore(
        isolated.application_url, schema="shop", writers=1, isolation=True, runtime_url=isolated.runtime_url
    )
    for tenant in ("a", "b", "a"):
        async with store.begin(tenant=tenant) as tx:
            assert (await tx.execute("SELECT current_setting('posthouse.tenant')")).scalar() == tenant
            await tx.execute("SELECT set_config('posthouse.tenant', 'b', false)")
            await tx.execute("SET SESSION posthouse.tenant = 'b'")
    async with store.begin(tenant="a") as tx:
        assert (await tx.execute("SELECT current_setting('posthouse.tenant')")).scalar() == "a"
    await store.aclose()


@pytest.mark.parametrize(
    "tenant", ["o'brien", "back\\slash", "'; DROP SCHEMA shop CASCADE; --", "ключ 🔑", "$$", "\\U00000027"]
)
async def test_a_tenant_may_be_called_anything(isolated: Ground, tenant: str) -> None:
    store = PostgresStore(isolated.application_url, schema="shop", isolation=True, runtime_url=isolated.runtime_url)
    async with store.begin(tenant=tenant) as tx:
        assert (await tx.execute("SELECT current_setting('posthouse.tenant')")).scalar() == tenant
        await store.outbox.append(tx, [row("k", tenant=tenant)])
        await store.timers.set(tx, Timer(name="t", due_at=1.0, row=row("k", tenant=tenant)))
    assert [found.tenant for found in await drain(store)] == [tenant]
    await store.aclose()


@pytest.mark.parametrize("shape", [psycopg.Connection, Session, AsyncSession, asyncpg.Connection])
async def test_a_transaction_of_another_library_works_for_its_tenant_too(isolated: Ground, shape: type) -> None:
    store = PostgresStore(isolated.application_url, schema="shop", isolation=True, runtime_url=isolated.runtime_url)
    for tenant in TENANTS:
        async with store.begin(shape, tenant=tenant) as tx:
            assert await tx.execute("SELECT current_user, current_setting('posthouse.tenant')") == [
                (isolated.application, tenant)
            ]
            await tx.execute(f"INSERT INTO invoice VALUES ('{tenant}', 'o1', 1)")
            assert await tx.execute("SELECT tenant FROM invoice") == [(tenant,)]
            await store.outbox.append(tx, [row("k", tenant=tenant)])
    assert [found.tenant for found in await drain(store)] == ["a", "b"]
    await store.aclose()


async def test_two_tenants_may_use_the_same_idempotency_key(isolated: Ground) -> None:
    store = PostgresStore(isolated.application_url, schema="shop", isolation=True, runtime_url=isolated.runtime_url)
    for tenant in (*TENANTS, *TENANTS):
        async with store.begin(tenant=tenant) as tx:
            given = row("k", tenant=tenant, event_id=f"of-{tenant}", idempotency_key="same")
            assert await store.outbox.append(tx, [given]) == [f"of-{tenant}"]
    assert [found.event_id for found in await drain(store)] == ["of-a", "of-b"]
    await store.aclose()


# Adding to a transaction of the user's.

Add = Callable[[Service, Any, str], Awaitable[object]]


async def add(service: Service, theirs: Any, tenant: str) -> object:
    return await service.outbox.add(theirs, OrderNoted(note="hello"), tenant=tenant)


SET = "SELECT set_config('posthouse.tenant', 'a', true)"


@asynccontextmanager
async def by_asyncpg(url: str, *, set_it: bool) -> AsyncIterator[object]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            if set_it:
                await connection.execute(SET)
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_psycopg(url: str, *, set_it: bool) -> AsyncIterator[object]:
    with psycopg.connect(url) as connection:
        if set_it:
            connection.execute(SET)
        yield connection


@asynccontextmanager
async def by_sqlalchemy(url: str, *, set_it: bool) -> AsyncIterator[object]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        if set_it:
            session.execute(text(SET))
        yield session


@asynccontextmanager
async def by_async_sqlalchemy(url: str, *, set_it: bool) -> AsyncIterator[object]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        if set_it:
            await session.execute(text(SET))
        yield session


JOINS = [by_asyncpg, by_psycopg, by_sqlalchemy, by_async_sqlalchemy]


@pytest_asyncio.fixture
async def producer(isolated: Ground) -> AsyncIterator[Service]:
    before = rehost(orders, store=url_of(isolated), broker=MemoryBroker(clock=SystemClock()), clock=SystemClock())
    yield orders
    await orders.aclose()
    orders.hosted_by(before)


@pytest.mark.parametrize("join", JOINS)
async def test_an_event_of_the_tenant_that_was_set_is_added(isolated: Ground, producer: Service, join: Any) -> None:
    async with join(isolated.application_url, set_it=True) as theirs:
        await add(producer, theirs, "a")
    assert [found.tenant for found in await drain(app_of(producer).store)] == ["a"]


@pytest.mark.parametrize(("set_it", "tenant"), [(True, "b"), (False, "a")])
@pytest.mark.parametrize("join", JOINS)
async def test_an_event_of_another_tenant_is_refused_in_words(
    isolated: Ground, producer: Service, join: Any, set_it: bool, tenant: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"set_config\('posthouse.tenant'"):
        async with join(isolated.application_url, set_it=set_it) as theirs:
            await add(producer, theirs, tenant)
    assert await drain(app_of(producer).store) == []


@pytest.mark.parametrize("join", JOINS)
async def test_a_joined_connection_that_policies_do_not_hold_is_refused(
    isolated: Ground, producer: Service, join: Any
) -> None:
    with pytest.raises(ConfigurationError, match="is a superuser"):
        async with join(isolated.url, set_it=True) as theirs:
            await add(producer, theirs, "a")
    assert await drain(app_of(producer).store) == []


async def test_hints_tell_nothing_about_tenants(isolated: Ground, postgres_server: PostgresServer) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(isolated.application_url)
    await listener.add_listener("posthouse shop", lambda *told: heard.append(str(told[3])))
    async with running(url_of(isolated)):
        await publish_for_both()
        await settled()
    await listener.close()
    assert set(heard) <= {""}

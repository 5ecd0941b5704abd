"""Locks on PostgreSQL: nobody who needs something else waits for an open transaction, and no two wait for each other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest_asyncio

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import StoreError
from posthouse.processes import Aggregate, Model, Projection, Saga, Turn, on, starts
from posthouse.store import HeldEvent, InboxEntry
from posthouse.store.sagas import SagaFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from tests.kit.long import LONG
from tests.kit.waiting import eventually

SECONDS = 2.0 if LONG else 0.2
"""For how long two operations run against each other."""


class Placed(Payload):
    order_id: str


class Paid(Payload):
    order_id: str
    cents: int


class Shop:
    """A service with everything that takes locks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = PostgresStore(url, writers=12)
        self.service = Service("shop")
        App(
            self.service,
            store=self.store,
            broker=MemoryBroker(clock=SystemClock()),
            settings=Settings(start="earliest"),
        )
        self.service.event("order.placed.v1", key="order_id")(Placed)
        self.service.event("account.paid.v1", key="order_id")(Paid)
        self.applied = 0

        @self.service.saga("order", correlate="order_id")
        class Order(Saga):
            order_id: str

            @starts
            def begin(self, turn: Turn) -> None:
                turn.publish(Placed(order_id=self.order_id))

            @on(Paid)
            def paid(self, event: Event[Paid], turn: Turn) -> None:
                turn.complete()

        @self.service.on(Placed)
        async def placed(event: Event[Placed], tx: Tx) -> None:
            self.applied += 1

        self.order: Any = Order
        self.accounts: Aggregate[int, Paid] = self.service.aggregate(
            "account", initial=int, evolve=lambda total, paid: total + paid.cents, events=[Paid]
        )
        self.totals: Projection = self.service.projection("totals")

        @self.totals.setup
        async def tables(model: Model) -> None:
            await model.execute(
                f"CREATE TABLE {model.table('total')} (account text PRIMARY KEY, cents bigint NOT NULL)"
            )

        @self.totals.on(Paid)
        async def paid(event: Event[Paid], model: Model) -> None:
            await model.execute(
                f"INSERT INTO {model.table('total')} AS t VALUES ($1, $2) "
                "ON CONFLICT (account) DO UPDATE SET cents = t.cents + excluded.cents",
                (event.key, event.data.cents),
            )


@pytest_asyncio.fixture
async def shop(postgres_url: str) -> AsyncIterator[Shop]:
    shop = Shop(postgres_url)
    await shop.store.upgrade()
    async with shop.service.transaction("t1") as tx:
        await tx.execute("CREATE TABLE stock (name text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)")
        await tx.execute("INSERT INTO stock (name) SELECT 'k' || n FROM generate_series(1, 3) n")
    yield shop
    await shop.service.aclose()


@contextlib.asynccontextmanager
async def open_on(shop: Shop, key: str) -> AsyncIterator[Tx]:
    """A transaction that has said something about a key and does not end."""
    async with shop.service.transaction("t1") as tx:
        for name in (key, f"new {key}"):
            await shop.store.outbox.append(tx.transaction, [row(name, topic="shop.order")])
        await tx.execute("UPDATE stock SET n = n + 1 WHERE name = 'k1'")
        await shop.service.start_saga(tx, shop.order(order_id=f"saga {key}"))
        await shop.accounts.append(tx, key, [Paid(order_id=key, cents=1)], expected="any")
        yield tx


# One open transaction on one key delays nothing else.


async def test_timers_of_other_keys_fire_while_a_key_is_held(shop: Shop) -> None:
    async with shop.service.transaction("t1") as tx:
        tx.publish(Placed(order_id="held"))
        for key in ("held", "new held", "free", "held", "other"):
            tx.publish(Placed(order_id=key), after=0.001, timer=f"{key} {new_id()}")
    await eventually(lambda: _due(shop, 5), within=5.0)
    async with open_on(shop, "held"):
        async with asyncio.timeout(2.0):
            assert await shop.store.timers.fire(100) == 2
            assert await shop.store.timers.fire(100) == 0
        left = sorted(str(timer.row.key) for timer in await shop.store.timers.pending())
        assert left == ["held", "held", "new held"]
    assert await shop.store.timers.fire(100) == 3


async def _due(shop: Shop, many: int) -> bool:
    now = SystemClock().now()
    return sum(timer.due_at <= now for timer in await shop.store.timers.pending()) == many


async def test_timers_behind_more_held_keys_than_are_taken_at_once_fire(shop: Shop) -> None:
    async with shop.service.transaction("t1") as tx:
        for number in range(12):
            tx.publish(Placed(order_id=f"made {number}"), after=0.001, timer=f"a {number}")
    async with shop.service.transaction("t1") as tx:
        tx.publish(Placed(order_id="free"), after=0.002, timer="free")
    await eventually(lambda: _due(shop, 13), within=5.0)
    async with shop.service.transaction("t1") as tx:
        for number in range(12):
            rows = [row(f"made {number}", topic="shop.order")]
            await shop.store.outbox.append(tx.transaction, rows)
        async with asyncio.timeout(5.0):
            assert await shop.store.timers.fire(4) == 1
    assert sum([await shop.store.timers.fire(4) for _ in range(3)]) == 12


async def test_everything_else_goes_on_while_a_key_is_held(shop: Shop) -> None:
    """Relay, consumers, held events, sagas and sweeping of a running service, beside one transaction that stays open."""
    async with shop.service.transaction("t1") as tx:
        tx.publish(Placed(order_id="held"))
        await shop.service.start_saga(tx, shop.order(order_id="other"))
    async with shop.service.running():
        await eventually(lambda: shop.applied >= 2, within=20.0)
        async with open_on(shop, "held"):
            async with shop.service.transaction("t1") as tx:
                tx.publish(Placed(order_id="free"))
                tx.publish(Placed(order_id="late"), after=0.01, timer="late")
                await shop.accounts.append(tx, "other", [Paid(order_id="other", cents=2)], expected="new")
            await eventually(lambda: shop.applied >= 4, within=20.0)
            await eventually(lambda: _completed(shop), within=20.0)
            async with asyncio.timeout(10.0):
                for sweep in (
                    shop.store.outbox.purge(100), shop.store.inbox.purge(0.0, 100), shop.store.sagas.purge(0.0, 10),
                ):  # fmt: skip
                    await sweep
    assert shop.applied >= 4


async def _is(said: bool) -> bool:
    return said


async def _completed(shop: Shop) -> bool:
    return bool(await shop.store.sagas.find(SagaFilter(id="other", status="completed")))


async def test_held_events_of_other_keys_are_claimed_while_one_is_held_by_a_transaction(shop: Shop) -> None:
    store = shop.store
    await store.inbox.register("c", "shop.order", False)
    async with store.begin() as tx:
        for key in ("k1", "k2"):
            await store.held.hold(tx, _held(key, 1))
    async with store.begin() as tx:
        mine = list(await store.held.claim_due("c", 1, 0.0))
        assert await store.held.remove(tx, mine[0])
        async with asyncio.timeout(2.0):
            others = await store.held.claim_due("c", 10, 30.0)
    assert len(others) == 1
    assert others[0].entry.key != mine[0].entry.key


def _held(key: str, sequence: int) -> HeldEvent:
    return HeldEvent(consumer="c", entry=_arrival(key, sequence), state="retrying", body=b"{}", type="order.placed.v1")


def _arrival(key: str, sequence: int | None) -> InboxEntry:
    return InboxEntry(
        topic="shop.order",
        tenant="t1",
        event_id=f"{key}-{sequence}-{new_id()}",
        digest=b"d",
        time=0.0,
        key=key,
        sequence=sequence,
    )


# Two that change the same things in different ways wait for each other in one order only.

Operation = Callable[[Shop, int], Awaitable[object]]
KEYS = ("k1", "k2", "k3")


async def append_in_block(shop: Shop, n: int) -> None:
    async with shop.service.transaction("t1") as tx:
        await tx.execute("UPDATE stock SET n = n + 1 WHERE name = $1", (KEYS[n % 3],))
        for key in _turned(n):
            tx.publish(Placed(order_id=key), idempotency_key=f"{key} {n % 5}")
            tx.publish(Placed(order_id=key))


async def record(shop: Shop, n: int) -> None:
    """All rows, and those in one order: else two such statements wait for each other by themselves, as the rows happen to lie."""
    rows = "SELECT name FROM stock WHERE name >= 'k1' ORDER BY name FOR UPDATE"
    sql = f"UPDATE stock SET n = n + 1 WHERE name IN ({rows})"
    assert await shop.service.record(sql, (), Placed(order_id=KEYS[n % 3]), tenant="t1")


async def joined_append(shop: Shop, n: int) -> None:
    connection = await asyncpg.connect(shop.url)
    try:
        async with connection.transaction():
            await connection.execute("UPDATE stock SET n = n + 1 WHERE name = $1", KEYS[n % 3])
            async with shop.service.joined(connection, "t1") as tx:
                for key in reversed(_turned(n)):
                    tx.publish(Placed(order_id=key))
    finally:
        await connection.close()


async def claim(shop: Shop, n: int) -> None:
    async with shop.store.begin() as tx:
        await shop.store.inbox.claim(tx, "c", [_arrival(KEYS[n % 3], 1 + n // 3)])


async def group_claim(shop: Shop, n: int) -> None:
    """Overlapping runs: of some keys the first number, of others a later one, as two members have them after a loss."""
    entries = [_arrival(key, 1 + (n + place) % 2) for place, key in enumerate(_turned(n))]
    async with shop.store.begin() as tx:
        await shop.store.inbox.claim(tx, "g", [*entries, _arrival("", None)])


async def settle(shop: Shop, n: int) -> None:
    shards = await shop.store.outbox.lease(f"relay {n % 2}", 0.05)
    poll = await shop.store.outbox.poll(shards, 100)
    if shards:
        await shop.store.outbox.settle(f"relay {n % 2}", poll, stuck=[])


async def fire(shop: Shop, n: int) -> None:
    async with shop.service.transaction("t1") as tx:
        for key in _turned(n):
            tx.publish(Placed(order_id=key), after=0.0001, timer=f"timer {key}")
    await shop.store.timers.fire(10)


async def held_retry(shop: Shop, n: int) -> None:
    store, key = shop.store, KEYS[n % 3]
    async with store.begin() as tx:
        await store.held.hold(tx, _held(key, 1 + n))
    for event in await store.held.claim_due("c", 3, 30.0):
        async with store.begin() as tx:
            if await store.held.remove(tx, event):
                await store.inbox.advance(tx, "c", event.entry)
                await store.held.promote(tx, "c", event.entry)


async def saga_turn(shop: Shop, n: int) -> None:
    async with shop.service.transaction("t1") as tx:
        await shop.service.start_saga(tx, shop.order(order_id=KEYS[n % 3]))
        for key in _turned(n):
            tx.publish(Placed(order_id=key), after=60.0, timer=f"timer {key}")


async def stream_append(shop: Shop, n: int) -> None:
    await shop.accounts.execute(KEYS[n % 3], lambda _: [Paid(order_id=KEYS[n % 3], cents=1)], tenant="t1")


async def sweep(shop: Shop, n: int) -> None:
    await shop.store.outbox.purge(100)
    await shop.store.inbox.purge(0.0, 100)
    await shop.store.sagas.purge(0.0, 100)


async def feed(shop: Shop, n: int) -> None:
    async with shop.store.begin(tenant="t1") as tx:
        table = f"totals_total_{await shop.store.projections.live(tx, 'shop.totals')}"
        await shop.store.inbox.claim(tx, "shop.totals", [_arrival(KEYS[n % 3], 1 + n)])
        await tx.execute(
            f"INSERT INTO {table} AS t VALUES ($1, 1) ON CONFLICT (account) DO UPDATE SET cents = t.cents + 1",
            (KEYS[n % 3],),
        )


async def test_recording_several_rows_never_waits_for_a_block_that_waits_for_it(shop: Shop) -> None:
    """The statement changes three rows, the block one of them; all say something about one key. Two such statements at once could
    wait for each other by themselves: a server changes rows in the order in which they lie."""
    done: Counter[bool] = Counter()

    async def block() -> None:
        for _ in range(40):
            async with shop.service.transaction("t1") as tx:
                await tx.execute("UPDATE stock SET n = n + 1 WHERE name = 'k2'")
                tx.publish(Placed(order_id="one"))

    async def recorded() -> None:
        for _ in range(80):
            sql = "UPDATE stock SET n = n + 1 WHERE name IN ('k1', 'k2', 'k3')"
            done[await shop.service.record(sql, (), Placed(order_id="one"), tenant="t1")] += 1

    before = await _deadlocks(shop)
    await asyncio.gather(block(), recorded(), block())
    await shop.service.aclose()
    assert done == {True: 80}
    assert await _deadlocks(shop) == before


def _turned(n: int) -> tuple[str, ...]:
    """The keys, in another order each time."""
    return (*KEYS[n % 3 :], *KEYS[: n % 3])


OPERATIONS: dict[str, Operation] = {
    "append in a block": append_in_block,
    "record": record,
    "joined append": joined_append,
    "claim": claim,
    "group claim": group_claim,
    "settle": settle,
    "timer fires": fire,
    "held retry": held_retry,
    "saga turn": saga_turn,
    "stream append": stream_append,
    "sweep": sweep,
    "projection is fed": feed,
}


async def test_no_two_operations_wait_for_each_other(shop: Shop) -> None:
    """Every pair, and each with itself, two of each at once."""
    await app_of(shop.service).open()
    for consumer in ("c", "g"):
        await shop.store.inbox.register(consumer, "shop.order", False)
    before = await _deadlocks(shop)
    done: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    waited: dict[tuple[str, str], int] = {}
    pairs = list(itertools.combinations_with_replacement(OPERATIONS, 2))
    numbers = itertools.count()

    async def repeat(name: str, until: float) -> None:
        while time.monotonic() < until:
            try:
                await OPERATIONS[name](shop, next(numbers))
                done[name] += 1
            except StoreError as error:
                errors[f"{name}: {error}"] += 1

    for one, other in pairs:
        until = time.monotonic() + SECONDS
        async with asyncio.timeout(30.0):
            await asyncio.gather(*(repeat(name, until) for name in (one, one, other, other)))
        if (found := await _deadlocks(shop)) > before:
            waited[one, other], before = found - before, found
    await shop.service.aclose()  # a session that ends has reported all that it saw
    assert await _deadlocks(shop) == before
    assert not waited
    assert not [words for words in errors if "waited for each other" in words or "deadlock" in words]
    assert set(done) == set(OPERATIONS)
    assert min(done.values()) >= 20, done
    assert sum(errors.values()) < sum(done.values()) / 10, errors.most_common(5)


async def _deadlocks(shop: Shop) -> int:
    connection = await asyncpg.connect(shop.url)
    try:
        return int(
            await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        )
    finally:
        await connection.close()

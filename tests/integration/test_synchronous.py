"""Code without an event loop: timers, sagas and aggregates in a transaction of its own, on every synchronous library."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection as django_connection
from django.db import transaction as django_transaction
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from posthouse import App, Event, Payload, Service, SyncTx, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, StoreError, TransactionClosed, VersionConflict
from posthouse.processes import Aggregate, Saga, Turn, deadline, on, starts, undo
from posthouse.store.sagas import SagaFilter
from tests.integration.django_site import django_on, django_on_sqlite

Nested = Callable[[], AbstractContextManager[object]]
End = Callable[[bool], None]


class Oops(Exception):
    """Leaves a savepoint."""


class Placed(Payload):
    order_id: str


class Paid(Payload):
    order_id: str
    cents: int


class Shop:
    """A service with an event, an aggregate and a saga, used from a thread without a loop."""

    def __init__(self, store: str) -> None:
        self.service = shop = Service("shop")
        App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
        shop.event("order.placed.v1", key="order_id")(Placed)
        shop.event("account.paid.v1", key="order_id")(Paid)

        @shop.saga("order", correlate="order_id")
        class Order(Saga):
            order_id: str
            patient: bool = False

            @starts
            async def begin(self, turn: Turn) -> None:
                if self.patient:
                    await asyncio.sleep(0.01)
                turn.publish(Placed(order_id=f"saga {self.order_id}"))
                turn.set(self.overdue)

            @undo(begin)
            def take_back(self, turn: Turn) -> None: ...

            @deadline(600.0)
            def overdue(self, turn: Turn) -> None:
                turn.compensate("overdue")

            @on(Paid)
            def paid(self, event: Event[Paid], turn: Turn) -> None:
                turn.complete()

        self.order: Any = Order
        self.accounts: Aggregate[int, Paid] = shop.aggregate(
            "account", initial=int, evolve=lambda total, paid: total + paid.cents, events=[Paid]
        )

    def prepare(self) -> None:
        """Tables, and a timer that stands."""

        async def prepared() -> None:
            await app_of(self.service).store.upgrade()
            async with self.service.transaction("t1") as tx:
                tx.publish(Placed(order_id="standing"), after=600.0, timer="standing")
                tx.publish(Placed(order_id="stopped"), after=600.0, timer="stopped")
            await self.service.aclose()

        asyncio.run(prepared())

    def say_all(self, tx: SyncTx, name: str) -> None:
        """Everything that can be said."""
        tx.publish(Placed(order_id=name))
        tx.publish(Placed(order_id=name), after=600.0, timer=f"timer {name}")
        tx.publish(Placed(order_id=name), after=600.0, timer=f"stopped at once {name}")
        assert tx.cancel(f"stopped at once {name}")
        assert not tx.cancel("never set")
        assert tx.call(self.service.start_saga, self.order(order_id=name))
        tx.call(self.accounts.append, name, [Paid(order_id=name, cents=5)], expected="new")
        assert tx.call(self.accounts.decide, name, lambda total: [Paid(order_id=name, cents=total * 2)]) == 15
        assert tx.call(self.accounts.load, name).version == 2
        assert [fact.data.cents for fact in tx.call(self.accounts.history, name)] == [5, 10]

    def outcome(self) -> dict[str, Any]:
        async def found() -> dict[str, Any]:
            store = app_of(self.service).store
            rows = await store.outbox.kept(0, 1000)
            async with self.service.transaction("t1") as tx:
                kept = await self.accounts.load(tx, "kept")
                gone = await self.accounts.load(tx, "gone")
            timers = [timer.name for timer in await store.timers.pending() if "/" not in timer.name]
            sagas = [saga.id for saga in await store.sagas.find(SagaFilter())]
            await self.service.aclose()
            return {
                "said": [row.key for row in rows if row.topic == "shop.order"],
                "timers": sorted(name for name in timers if name.startswith(("timer", "st"))),
                "sagas": sagas,
                "accounts": [(kept.state, kept.version), (gone.state, gone.version)],
            }

        return asyncio.run(found())


NOTHING: dict[str, Any] = {"said": [], "timers": ["standing", "stopped"], "sagas": [], "accounts": [(0, 0), (0, 0)]}
KEPT: dict[str, Any] = {
    "said": ["kept", "saga kept"],
    "timers": ["standing", "timer kept"],
    "sagas": ["kept"],
    "accounts": [(15, 2), (0, 0)],
}


@contextmanager
def on_sqlite3(url: str) -> Iterator[tuple[Any, End, Nested]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection, lambda commit: (connection.commit if commit else connection.rollback)(), by_hand(connection)


@contextmanager
def on_psycopg(url: str) -> Iterator[tuple[Any, End, Nested]]:
    with closing(psycopg.connect(url)) as connection:
        connection.execute("SELECT 1")
        yield (
            connection,
            lambda commit: (connection.commit if commit else connection.rollback)(),
            connection.transaction,
        )


@contextmanager
def on_session(url: str) -> Iterator[tuple[Any, End, Nested]]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    if engine.dialect.name == "sqlite":  # as SQLAlchemy says for savepoints
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with Session(engine) as session:
        yield session, lambda commit: (session.commit if commit else session.rollback)(), session.begin_nested
    engine.dispose()


@contextmanager
def on_django(url: str) -> Iterator[tuple[Any, End, Nested]]:
    with django_on(url):
        atomic = django_transaction.atomic()
        atomic.__enter__()

        def end(commit: bool) -> None:
            django_transaction.set_rollback(not commit)
            atomic.__exit__(None, None, None)

        yield django_connection, end, django_transaction.atomic
        if django_connection.in_atomic_block:
            end(False)


@contextmanager
def on_django_with_sqlite(url: str) -> Iterator[tuple[Any, End, Nested]]:
    with django_on_sqlite(Path(url.removeprefix("sqlite:///"))) as connection:
        atomic = django_transaction.atomic(using=connection.alias)
        atomic.__enter__()

        def end(commit: bool) -> None:
            django_transaction.set_rollback(not commit, using=connection.alias)
            atomic.__exit__(None, None, None)

        yield connection, end, lambda: django_transaction.atomic(using=connection.alias)
        if connection.in_atomic_block:
            end(False)


def by_hand(connection: sqlite3.Connection) -> Nested:
    @contextmanager
    def nested() -> Iterator[None]:
        connection.execute("SAVEPOINT by_hand")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK TO by_hand")
            raise
        finally:
            connection.execute("RELEASE by_hand")

    return nested


def on_django_without_atomic(joining: Any) -> Any:
    """Inside of atomic() Django refuses to roll back; where it commits by hand, it does so."""

    @contextmanager
    def by_hand(url: str) -> Iterator[tuple[Any, End, Nested]]:
        with joining(url) as (connection, end, nested):
            end(False)
            connection.set_autocommit(False)
            yield connection, lambda commit: (connection.commit if commit else connection.rollback)(), nested
            connection.set_autocommit(True)

    return by_hand


WAYS: dict[str, tuple[str, Any]] = {
    "sqlite3": ("sqlite", on_sqlite3),
    "Session on SQLite": ("sqlite", on_session),
    "psycopg": ("postgres", on_psycopg),
    "Session on PostgreSQL": ("postgres", on_session),
    "Django": ("postgres", on_django),
    "Django on SQLite": ("sqlite", on_django_with_sqlite),
}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Shop, str, Any]:
    kind, joining = WAYS[request.param]
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Shop(url)
    shop.prepare()
    return shop, url, joining


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_timers_sagas_and_aggregates_are_there_with_their_transaction_or_not_at_all(
    way: tuple[Shop, str, Any], commit: bool
) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, _):
        with shop.service.outbox.joined(theirs, "t1") as tx:
            assert tx.cancel("stopped")
            shop.say_all(tx, "kept")
        end(commit)
    assert shop.outcome() == (KEPT if commit else NOTHING)


@pytest.mark.parametrize("ours", [False, True], ids=["theirs", "tx.savepoint"])
def test_a_savepoint_that_is_rolled_back_takes_with_it_what_was_said(way: tuple[Shop, str, Any], ours: bool) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, nested):
        with shop.service.outbox.joined(theirs, "t1") as tx:
            assert tx.cancel("stopped")
            with contextlib.suppress(Oops), tx.savepoint() if ours else nested():
                assert tx.cancel("standing")
                shop.say_all(tx, "gone")
                raise Oops
            with tx.savepoint() if ours else nested():
                shop.say_all(tx, "kept")
        end(True)
    assert shop.outcome() == KEPT


def test_what_fails_inside_the_block_says_nothing_and_leaves_the_rest_to_you(way: tuple[Shop, str, Any]) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, _):
        with contextlib.suppress(Oops), shop.service.outbox.joined(theirs, "t1") as tx:
            tx.publish(Placed(order_id="gone"))
            tx.publish(Placed(order_id="gone"), after=5.0, timer="timer gone")
            raise Oops
        end(True)
    assert shop.outcome() == NOTHING


def test_a_block_that_was_left_takes_nothing_more(way: tuple[Shop, str, Any]) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, _):
        with shop.service.outbox.joined(theirs, "t1") as tx:
            assert tx.tenant == "t1"
        with pytest.raises(TransactionClosed):
            tx.publish(Placed(order_id="late"))
        with pytest.raises(TransactionClosed):
            tx.execute("SELECT 1")
        end(True)
    assert shop.outcome() == NOTHING


@pytest.mark.parametrize("verb", ["rollback", "commit"])
def test_nothing_is_said_behind_the_end_of_the_whole(way: tuple[Shop, str, Any], verb: str) -> None:
    shop, url, joining = way
    if joining in (on_django, on_django_with_sqlite):
        joining = on_django_without_atomic(joining)

    def end_inside(theirs: Any) -> None:
        with shop.service.outbox.joined(theirs, "t1") as tx:
            tx.publish(Placed(order_id="gone"), after=5.0, timer="timer gone")
            getattr(theirs, verb)()
            tx.publish(Placed(order_id="gone"))

    with joining(url) as (theirs, end, _):
        with pytest.raises(StoreError, match="ended before its block"):
            end_inside(theirs)
        end(True)
    assert shop.outcome() == NOTHING


def test_a_block_inside_of_a_block_leaves_the_outer_one_hearing(way: tuple[Shop, str, Any]) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, nested):
        with shop.service.outbox.joined(theirs, "t1") as tx:
            assert tx.cancel("stopped")
            with shop.service.outbox.joined(theirs, "t1") as inner:
                shop.say_all(inner, "kept")
            with contextlib.suppress(Oops), nested():
                tx.publish(Placed(order_id="gone"))
                raise Oops
        with contextlib.suppress(Oops), nested():
            raise Oops
        end(True)
    assert shop.outcome() == KEPT


def test_a_conflict_is_told_and_the_transaction_goes_on(way: tuple[Shop, str, Any]) -> None:
    shop, url, joining = way
    with joining(url) as (theirs, end, _):
        with shop.service.outbox.joined(theirs, "t1") as tx:
            assert tx.cancel("stopped")
            shop.say_all(tx, "kept")
            with pytest.raises(VersionConflict):
                tx.call(shop.accounts.append, "kept", [Paid(order_id="kept", cents=1)], expected="new")
            assert not tx.call(shop.service.start_saga, shop.order(order_id="kept"))
            assert tx.execute("SELECT :a", {"a": 7}).rowcount is not None
        end(True)
    assert shop.outcome() == KEPT


def test_what_waits_for_something_else_is_refused_with_words(way: tuple[Shop, str, Any]) -> None:
    shop, url, joining = way

    async def pause(tx: Tx) -> None:
        await asyncio.sleep(0)

    async def start(tx: Tx) -> None:
        await shop.service.start_saga(tx, shop.order(order_id="gone", patient=True))

    def say_and(theirs: Any, work: Callable[[Tx], Awaitable[None]]) -> None:
        with shop.service.outbox.joined(theirs, "t1") as tx:
            tx.publish(Placed(order_id="gone"))
            tx.call(work)

    with joining(url) as (theirs, end, _):
        with pytest.raises(ConfigurationError, match="start waits for something else"):
            say_and(theirs, start)
        with pytest.raises(ConfigurationError, match="pause waits for something else"):
            say_and(theirs, pause)
        end(False)
    assert shop.outcome() == NOTHING


def test_a_plain_handler_sets_timers_on_the_connection_that_it_was_given(postgres_url: str, tmp_path: Path) -> None:
    for url, library in ((postgres_url, psycopg.Connection), (f"sqlite:///{tmp_path / 'shop.db'}", sqlite3.Connection)):
        shop = Shop(url)

        def handle(event: Event[Placed], connection: Any, shop: Shop = shop) -> None:
            with shop.service.outbox.joined(connection, event.tenant) as tx:
                assert tx.cancel("stopped")
                shop.say_all(tx, "kept")

        handle.__annotations__ |= {"event": Event[Placed], "connection": library, "return": None}
        handle.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # without the default
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=handle.__annotations__[name])
             for name in ("event", "connection")]
        )  # fmt: skip
        shop.service.on(Placed)(handle)
        shop.prepare()

        async def ask(shop: Shop = shop) -> None:
            async with shop.service.transaction("t1") as tx:
                tx.publish(Placed(order_id="asked"))
            async with asyncio.timeout(20.0), shop.service.running():
                while "kept" not in [row.key for row in await app_of(shop.service).store.outbox.kept(0, 100)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

        asyncio.run(ask())


def test_an_asynchronous_connection_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    import aiosqlite

    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}")
    shop.prepare()

    async def join() -> None:
        async with aiosqlite.connect(tmp_path / "shop.db") as connection:
            with (
                pytest.raises(ConfigurationError, match="needs an event loop"),
                shop.service.outbox.joined(connection, "t1"),
            ):
                pass

    asyncio.run(join())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_timer_on_a_connection_that_commits_by_itself_is_refused(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Shop(url)
    shop.prepare()
    connection: Any = (
        psycopg.connect(url, autocommit=True)
        if kind == "postgres"
        else sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    )
    with (
        closing(connection),
        pytest.raises(ConfigurationError, match="no transaction is open"),
        shop.service.outbox.joined(connection, "t1") as tx,
    ):
        tx.publish(Placed(order_id="gone"), after=600.0, timer="timer gone")
    assert shop.outcome() == NOTHING


def test_django_on_psycopg2_has_timers_sagas_and_aggregates_as_well(postgres_url: str) -> None:
    """The driver is chosen once per process, so this needs one of its own."""
    shop = Shop(postgres_url)
    shop.prepare()
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import types; types.SimpleNamespace\n" + inspect.getsource(_say_by_psycopg2) + "_say_by_psycopg2()"
    )
    command = [sys.executable, "-c", script, postgres_url]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "psycopg2\n"), run.stderr
    assert shop.outcome()["timers"] == ["standing", "timer kept"]
    assert shop.outcome()["said"] == ["kept"]


def _say_by_psycopg2() -> None:
    import contextlib
    import sys

    from django.db import connection, transaction

    from posthouse import App, Payload, Service
    from posthouse.brokers.memory import MemoryBroker
    from posthouse.clock import SystemClock
    from tests.integration.django_site import django_on

    shop = Service("shop")
    App(shop, store=sys.argv[1], broker=MemoryBroker(clock=SystemClock()))

    @shop.event("order.placed.v1", key="order_id")
    class Placed(Payload):
        order_id: str

    with django_on(sys.argv[1]), transaction.atomic(), shop.outbox.joined(connection, "t1") as tx:
        assert tx.cancel("stopped")
        tx.publish(Placed(order_id="kept"))
        tx.publish(Placed(order_id="kept"), after=600.0, timer="timer kept")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            tx.publish(Placed(order_id="gone"), after=600.0, timer="timer gone")
            raise ZeroDivisionError
        print(type(connection.connection).__module__.partition(".")[0])

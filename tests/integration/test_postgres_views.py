"""A handler gets its transaction in the shape that its author lives with; claim, rows and events are one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from django.db import transaction as django_transaction
from sqlalchemy.exc import InvalidRequestError

from posthouse import Policy
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import CommitUnknown, ConfigurationError, StoreError, StoreUnavailable, TransactionClosed
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.chaos import Chaos, ChaosBroker
from tests.integration.django_site import django_on
from tests.integration.shaped import KINDS, Kind, Scene, end_backend, tables
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

QUICK = Policy(first_delay=0.02, deadline=10.0)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Kind]:
    with django_on(postgres_url):
        yield request.param


@pytest.fixture
def scene(kind: Kind) -> Scene:
    return Scene(kind)


def kinds(*, plain: bool) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "kind", [kind for kind in KINDS if kind.plain is plain], ids=lambda kind: kind.name, indirect=True
    )


# A service's handler.


async def test_rows_events_and_the_claim_commit_together(scene: Scene, postgres_url: str) -> None:
    scene.handle(QUICK)
    async with scene.running(postgres_url):
        await scene.place(("o1", 1), ("o2", 1), ("o1", 2))
        figures = await scene.settled()
        assert sorted(await scene.invoices()) == [("o1", 1), ("o1", 2), ("o2", 1)]
        assert await scene.issued_count() == 3
        assert next(line for line in figures.lines if line.consumer == "billing").applied == 3


async def test_a_handler_that_raises_leaves_nothing_and_runs_again(scene: Scene, postgres_url: str) -> None:
    def fail() -> None:
        raise RuntimeError("the ledger is closed")

    async def fail_async(theirs: Any) -> None:
        fail()

    scene.misbehave = (lambda theirs: fail()) if scene.kind.plain else fail_async
    scene.handle(QUICK)
    async with scene.running(postgres_url):
        await scene.place(("o1", 1))
        await scene.settled()
        assert (scene.runs, await scene.invoices(), await scene.issued_count()) == (2, [("o1", 1)], 1)


async def test_a_handler_that_outstays_its_deadline_cannot_write(scene: Scene, postgres_url: str) -> None:
    scene.misbehave = scene.try_late
    scene.handle(Policy(first_delay=0.02, deadline=0.2))
    async with scene.running(postgres_url):
        await scene.place(("o1", 1), ("o1", 2))
        await scene.settled()
        scene.released.set()
        assert (await eventually(scene.tried_late))[0] is not None
        assert (scene.runs, await scene.invoices(), await scene.issued_count()) == (3, [("o1", 1), ("o1", 2)], 2)


async def test_duplicates_are_applied_once(scene: Scene, postgres_url: str) -> None:
    scene.handle(QUICK)
    broker: Any = ChaosBroker(MemoryBroker(clock=SystemClock()), Chaos(duplicate=1.0), seed=1)
    async with scene.running(postgres_url, broker=broker):
        await scene.place(*((f"o{number % 3}", number) for number in range(9)))
        await scene.settled()
        assert sorted(await scene.invoices()) == sorted((f"o{number % 3}", number) for number in range(9))
        assert (scene.runs, await scene.issued_count()) == (9, 9)


async def test_a_connection_killed_under_a_handler_is_no_fault_of_the_event(scene: Scene, postgres_url: str) -> None:
    scene.misbehave = scene.kill(postgres_url)
    scene.handle(Policy(first_delay=30.0))  # had it counted as a failure, it would wait
    async with scene.running(postgres_url):
        await scene.place(("o1", 1))
        await scene.settled()
        assert (scene.runs, await scene.invoices(), await scene.issued_count()) == (2, [("o1", 1)], 1)


async def test_behind_a_pooler_nothing_is_different(scene: Scene, postgres_url: str, pgbouncer: PostgresServer) -> None:
    scene.misbehave = scene.try_late
    scene.handle(Policy(first_delay=0.02, deadline=0.3))
    url = pgbouncer.url_of(urlsplit(postgres_url).path.removeprefix("/"))
    with django_on(url) as connection:
        connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = True
        async with scene.running(url, options="&pooler=transaction"):
            await scene.place(*((f"o{number % 3}", number) for number in range(9)))
            await scene.settled()
            scene.released.set()
            assert (await eventually(scene.tried_late))[0] is not None
            assert sorted(await scene.invoices()) == sorted((f"o{number % 3}", number) for number in range(9))
            assert await scene.issued_count() == 9


async def test_many_at_once_share_the_places_of_the_store(scene: Scene, postgres_url: str) -> None:
    scene.handle(QUICK)
    async with scene.running(postgres_url, options="&writers=2"):
        await scene.place(*((f"o{number}", 1) for number in range(20)))
        await scene.settled()
        assert sorted(await scene.invoices()) == sorted((f"o{number}", 1) for number in range(20))


async def test_a_grouped_handler_shares_one_transaction(scene: Scene, postgres_url: str) -> None:
    scene.handle(Policy(grouped=True))
    async with scene.running(postgres_url):
        await scene.place(*((f"o{number}", 1) for number in range(20)))
        await scene.settled()
        assert len(await scene.invoices()) == 20
        assert await scene.issued_count() == 20


async def test_what_goes_wrong_too_often_is_dead(scene: Scene, postgres_url: str) -> None:
    """An error that the handler passes over is one all the same."""
    scene.misbehave = _pass_over(scene.kind)
    scene.handle(Policy(max_attempts=1))
    async with scene.running(postgres_url):
        await scene.place(("o1", 1))
        dead = await eventually(lambda: app_of(scene.billing).store.held.find(HeldFilter(state="dead")))
        assert "passed over" in dead[0].error
        assert await scene.invoices() == []


def _pass_over(kind: Kind) -> Callable[[Any], Any]:
    def plain(theirs: Any) -> None:
        with contextlib.suppress(Exception):
            kind.run(theirs, "SELECT nonsense")

    async def asynchronous(theirs: Any) -> None:
        with contextlib.suppress(Exception):
            await kind.run(theirs, "SELECT nonsense")

    return plain if kind.plain else asynchronous


@kinds(plain=False)
async def test_events_may_be_added_to_an_asynchronous_shape(scene: Scene, postgres_url: str) -> None:
    async def add(theirs: Any) -> None:
        await scene.billing.outbox.add(theirs, scene.issued(order_id="added"), tenant="t1")

    scene.misbehave = add
    scene.handle(QUICK)
    async with scene.running(postgres_url):
        await scene.place(("o1", 1))
        await scene.settled()
        assert await scene.issued_count() == 2


@kinds(plain=True)
async def test_events_may_be_added_to_a_synchronous_shape(scene: Scene, postgres_url: str) -> None:
    scene.misbehave = lambda theirs: scene.billing.outbox.add_now(theirs, scene.issued(order_id="a"), tenant="t1")
    scene.handle(QUICK)
    async with scene.running(postgres_url):
        await scene.place(("o1", 1))
        await scene.settled()
        assert await scene.issued_count() == 2


# The store alone.


@pytest_asyncio.fixture
async def store(kind: Kind, postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await tables(store)
    yield store
    await store.aclose()


async def use(store: PostgresStore, tx: Any, kind: Kind, work: Callable[[Any], Any]) -> None:
    """Call `work` with the view, where a handler of that kind would run."""
    if not kind.plain:
        with store.view(tx, kind.shape) as theirs:
            await work(theirs)
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def job() -> None:
        try:
            with store.view(tx, kind.shape) as theirs:
                work(theirs)
        except Exception as error:
            done.get_loop().call_soon_threadsafe(done.set_exception, error)
        else:
            done.get_loop().call_soon_threadsafe(done.set_result, None)

    tx.submit(job)
    await done


@contextlib.asynccontextmanager
async def failing(store: PostgresStore, kind: Kind) -> AsyncIterator[Any]:
    """A transaction whose block raises at its end."""
    with contextlib.suppress(ZeroDivisionError):
        async with store.begin(kind.shape) as tx:
            yield tx
            raise ZeroDivisionError


async def names(store: PostgresStore) -> list[object]:
    async with store.begin() as tx:
        return [name for (name,) in await tx.execute("SELECT name FROM mine ORDER BY name")]


def writes(kind: Kind, name: str) -> Callable[[Any], Any]:
    return lambda theirs: kind.run(theirs, f"INSERT INTO mine VALUES ('{name}')")


async def test_our_statements_and_the_view_are_one_transaction(store: PostgresStore, kind: Kind) -> None:
    async with failing(store, kind) as tx:
        await tx.execute("INSERT INTO mine VALUES ('ours')")
        await use(store, tx, kind, writes(kind, "theirs"))
        assert await tx.execute("SELECT count(*) FROM mine") == [(2,)]
    assert await names(store) == []
    async with store.begin(kind.shape) as tx:
        await tx.execute("INSERT INTO mine VALUES ('ours')")
        await use(store, tx, kind, writes(kind, "theirs"))
    assert await names(store) == ["ours", "theirs"]
    with pytest.raises(TransactionClosed):
        await tx.execute("SELECT 1")


async def test_an_empty_transaction_commits(store: PostgresStore, kind: Kind) -> None:
    async with store.begin(kind.shape):
        pass
    async with store.begin(kind.shape) as tx:
        assert await tx.execute("SELECT 1") == [(1,)]


async def test_a_commit_whose_answer_is_lost_is_unknown(store: PostgresStore, kind: Kind) -> None:
    await _break_commits(store)
    with pytest.raises(CommitUnknown):
        async with store.begin(kind.shape) as tx:
            await tx.execute("INSERT INTO mine VALUES ('a')")
    async with store.begin(kind.shape) as tx:
        assert await tx.execute("SELECT count(*) FROM mine") == [(0,)]


async def _break_commits(store: PostgresStore) -> None:
    """The server ends the session in the middle of its COMMIT."""
    async with store.begin() as tx:
        await tx.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END $$"
        )
        await tx.execute(
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION die()"
        )


async def test_a_connection_that_was_ended_while_idle_is_replaced(
    store: PostgresStore, kind: Kind, postgres_url: str
) -> None:
    async with store.begin(kind.shape) as tx:
        pid = int(str((await tx.execute("SELECT pg_backend_pid()")).scalar()))
    await asyncio.to_thread(end_backend, postgres_url, pid)
    async with store.begin(kind.shape) as tx:
        assert (await tx.execute("SELECT pg_backend_pid()")).scalar() != pid


async def test_connections_are_used_again(store: PostgresStore, kind: Kind) -> None:
    pids = set()
    for _ in range(5):
        async with store.begin(kind.shape) as tx:
            pids.add((await tx.execute("SELECT pg_backend_pid()")).scalar())
    assert len(pids) == 1


async def test_a_connection_lost_inside_the_block_is_the_stores_trouble(
    store: PostgresStore, kind: Kind, postgres_url: str
) -> None:
    async def lose() -> None:
        async with store.begin(kind.shape) as tx:
            pid = int(str((await tx.execute("SELECT pg_backend_pid()")).scalar()))
            await asyncio.to_thread(end_backend, postgres_url, pid)
            await tx.execute("INSERT INTO mine VALUES ('a')")

    with pytest.raises(StoreUnavailable):
        await lose()
    assert await names(store) == []


@pytest.mark.parametrize("how", ["commit()", "/* it's /* nested */ */ COMMIT AND CHAIN"])
async def test_a_handler_cannot_commit(store: PostgresStore, kind: Kind, how: str) -> None:
    if kind.name in ("asyncpg.Connection", "sqlalchemy.AsyncSession", "sqlalchemy.Session") and how == "commit()":
        pytest.skip("asyncpg has no commit, and that of a session only flushes")

    def plain(theirs: Any) -> None:
        kind.run(theirs, "INSERT INTO mine VALUES ('a')")
        theirs.commit() if how == "commit()" else kind.run(theirs, how)

    async def asynchronous(theirs: Any) -> None:
        await kind.run(theirs, "INSERT INTO mine VALUES ('a')")
        await (theirs.commit() if how == "commit()" else kind.run(theirs, how))

    with pytest.raises((StoreError, django_transaction.TransactionManagementError)):
        async with store.begin(kind.shape) as tx:
            await use(store, tx, kind, plain if kind.plain else asynchronous)
    assert await names(store) == []


async def test_what_a_handler_sets_in_its_session_does_not_reach_the_next(store: PostgresStore, kind: Kind) -> None:
    if kind.name == "django.BaseDatabaseWrapper":
        pytest.skip("Django keeps the session between two requests, and so here")
    async with store.begin(kind.shape) as tx:
        await use(store, tx, kind, lambda theirs: kind.run(theirs, "SET statement_timeout = '9s'"))
    async with store.begin(kind.shape) as tx:
        assert (await tx.execute("SHOW statement_timeout")).scalar() == "0"


@pytest.mark.parametrize("words", ["SET ROLE", "SET SESSION AUTHORIZATION"])
async def test_a_role_that_a_handler_takes_is_not_that_of_the_next(
    store: PostgresStore, kind: Kind, words: str
) -> None:
    if kind.name == "django.BaseDatabaseWrapper":
        pytest.skip("Django keeps the session between two requests, and so here")
    who = "SELECT current_user, session_user, pg_backend_pid()"
    async with store.begin(kind.shape) as tx:
        before = await tx.execute(who)
        await use(store, tx, kind, lambda theirs: kind.run(theirs, f"{words} pg_monitor"))
    async with store.begin(kind.shape) as tx:
        assert await tx.execute(who) == before


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if "Session" in kind.name], ids=lambda k: k.name, indirect=True
)
async def test_a_session_that_rolled_back_and_went_on_commits_nothing(store: PostgresStore, kind: Kind) -> None:
    def plain(theirs: Any) -> None:
        kind.run(theirs, "INSERT INTO mine VALUES ('a')")
        theirs.rollback()
        kind.run(theirs, "INSERT INTO mine VALUES ('b')")

    async def asynchronous(theirs: Any) -> None:
        await kind.run(theirs, "INSERT INTO mine VALUES ('a')")
        await theirs.rollback()
        await kind.run(theirs, "INSERT INTO mine VALUES ('b')")

    async def go_on() -> None:
        async with store.begin(kind.shape) as tx:
            await tx.execute("INSERT INTO mine VALUES ('claim')")
            await use(store, tx, kind, plain if kind.plain else asynchronous)

    with pytest.raises((TransactionClosed, InvalidRequestError)):
        await go_on()
    assert await names(store) == []


async def test_a_shape_is_refused_at_the_start(kind: Kind, postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    assert store.refusal(kind.shape, plain=kind.plain) is None
    assert "possible are" in str(store.refusal(kind.shape, plain=not kind.plain))
    assert "possible are" in str(store.refusal(dict, plain=kind.plain))
    await store.aclose()


@kinds(plain=True)
async def test_a_synchronous_shape_is_not_for_the_loop(store: PostgresStore, kind: Kind) -> None:
    async with store.begin(kind.shape) as tx:
        with pytest.raises(ConfigurationError, match="plain `def`"):
            store.view(tx, kind.shape)


async def test_django_on_another_database_is_refused(postgres_url: str, postgres_server: PostgresServer) -> None:
    shape = KINDS[-1].shape
    store = PostgresStore(postgres_url)
    await store.upgrade()
    refused = pytest.raises(ConfigurationError, match="DATABASES")
    with postgres_server.database() as other, django_on(other), refused:
        async with store.begin(shape):
            pass
    await store.aclose()

"""Secret fields in all that a service keeps and does: streams, read models, sagas, timers, what is sent again, code without a loop,
events that fail, older versions beside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from posthouse import App, Event, Model, Payload, Personal, Policy, Service, Tx, subject_erased
from posthouse.erasure import erase, prove
from posthouse.events import decode_any
from posthouse.processes import Saga, Turn, deadline, on, starts
from posthouse.processes.projection import Plan
from posthouse.receiving.editing import check_edit, with_fields
from posthouse.resend import Choice, resend
from posthouse.store import HeldFilter
from posthouse.trust.secrets import ERASED, Secrets
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from posthouse.watch.status import drained
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

NAME = "Ada-Lovelace"
SOURCES: tuple[Literal["streams", "log"], ...] = ("streams", "log")


class GuestArrived(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]


class GuestRenamed(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]
    by: str = "desk"


class GuestGreeted(Payload):
    guest_id: str
    words: Annotated[str, Personal("identity")]


class GuestNoted(Payload):
    guest_id: str
    note: Annotated[str, Personal("identity")]


class GuestNotedNew(Payload):
    guest_id: str
    note: Annotated[str, Personal("identity")]
    stars: int


class Inn:
    """A service with an aggregate, a read model of it, a saga, and handlers that say what they saw."""

    def __init__(self, folder: Path, store: str, broker: str, keys: str) -> None:
        self.folder, self.url = folder, store
        self.service = inn = Service("inn")
        self.seen: list[tuple[str, str]] = []
        self.fails = False
        for name, payload in (
            ("guest.arrived.v1", GuestArrived),
            ("guest.renamed.v1", GuestRenamed),
            ("guest.greeted.v1", GuestGreeted),
        ):
            inn.event(name, key="guest_id", about="guest_id")(payload)
        old = inn.event("guest.noted.v1", key="guest_id", about="guest_id")(GuestNoted)
        new = inn.event("guest.noted.v2", key="guest_id", about="guest_id")(GuestNotedNew)
        inn.downcast(new, to=old)(lambda fact: GuestNoted(guest_id=fact.guest_id, note=fact.note))
        subject_erased(inn)
        self.guests: Any = inn.aggregate(
            "guest", initial=str, evolve=lambda _, fact: fact.name, events=(GuestArrived, GuestRenamed)
        )
        self.board = inn.projection("board")
        self.board.setup(self.tables)
        self.board.on(GuestArrived)(self.write)
        self.board.on(GuestRenamed)(self.write)
        inn.on(GuestGreeted, consumer="greet", policy=Policy(max_attempts=1))(self.see("greeted", "words"))
        inn.on(GuestNoted, consumer="old-readers")(self.see("old", "note"))
        inn.on(GuestNotedNew, consumer="new-readers")(self.see("new", "note"))

        @inn.saga("stay", correlate="guest_id")
        class Stay(Saga):
            guest_id: str
            name: str = ""

            @starts(GuestArrived)
            def begin(self, event: Event[GuestArrived], turn: Turn) -> None:
                self.name = event.data.name
                turn.set(self.patience)

            @deadline(600.0)
            def patience(self, turn: Turn) -> None:
                turn.compensate("waited")

            @on(GuestRenamed)
            def greet(self, event: Event[GuestRenamed], turn: Turn) -> None:
                turn.publish(GuestGreeted(guest_id=self.guest_id, words=self.name))
                turn.complete()

        self.app = App(
            inn, store=store, broker=broker, secrets=Secrets(keys=keys, master=f"file:{folder}/master.key", reads=["*"])
        )

    async def tables(self, model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('guest')} (guest_id TEXT PRIMARY KEY, name TEXT)")

    async def write(self, event: Event[Any], model: Model) -> None:
        await model.execute(
            f"INSERT INTO {model.table('guest')} (guest_id, name) VALUES (:guest_id, :name) "
            "ON CONFLICT (guest_id) DO UPDATE SET name = excluded.name",
            {"guest_id": event.data.guest_id, "name": event.data.name},
        )

    def see(self, what: str, field: str) -> Any:
        async def handle(event: Event[Any], tx: Tx) -> None:
            if self.fails:
                raise ValueError(f"cannot greet {getattr(event.data, field)}")
            self.seen.append((what, getattr(event.data, field)))

        handle.__name__ = f"see_{what}"
        return handle

    async def publish(self, *facts: Payload, **terms: Any) -> None:
        async with self.service.transaction("t1") as tx:
            for fact in facts:
                tx.publish(fact, **terms)

    async def names(self) -> list[tuple[object, ...]]:
        async with self.service.transaction("t1") as tx:
            table = await self.board.table(tx, "guest")
            return [tuple(row) for row in await tx.execute(f"SELECT guest_id, name FROM {table} ORDER BY guest_id")]

    async def stored(self) -> str:
        """All that lies in the tables of the library."""
        if self.url.startswith("sqlite"):
            with sqlite3.connect(self.folder / "inn.db") as connection:
                lines = "\n".join(line for line in connection.iterdump() if '"posthouse_' in line)
                blobs = b"".join(
                    bytes(part)
                    for (table,) in connection.execute(
                        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'posthouse_%'"
                    ).fetchall()
                    for row in connection.execute(f"SELECT * FROM {table}")
                    for part in row
                    if isinstance(part, bytes)
                )
            connection.close()
            return lines + blobs.decode("utf-8", "replace")
        server = await asyncpg.connect(self.url)
        tables = await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'posthouse'")
        found = ""
        for (table,) in tables:
            for row in await server.fetch(f"SELECT * FROM posthouse.{table}"):
                found += "".join(
                    part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in row.values()
                )
        await server.close()
        return found


@pytest.fixture
def databases(postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    with postgres_server.database() as store, postgres_server.database() as keys:
        yield store, keys


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def inn(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Inn]:
    if request.param == "sqlite":
        inn = Inn(
            tmp_path, f"sqlite:///{tmp_path}/inn.db", f"embedded:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/keys.db"
        )
    else:
        store, keys = request.getfixturevalue("databases")
        ring = PostgresKeys(keys)
        await ring.upgrade()
        await ring.aclose()
        inn = Inn(tmp_path, store, store, keys)
        await inn.app.store.upgrade()
    yield inn
    await inn.app.aclose()


async def test_a_stream_and_its_read_model_say_names_until_the_guest_is_erased(inn: Inn) -> None:
    async with inn.app.running():
        await inn.guests.execute("g1", lambda _: GuestArrived(guest_id="g1", name=NAME), tenant="t1")
        await inn.guests.execute("g2", lambda _: GuestArrived(guest_id="g2", name="Bob"), tenant="t1")
        assert await inn.guests.execute("g2", lambda _: GuestRenamed(guest_id="g2", name="Rob"), tenant="t1") == "Rob"
        await eventually(inn.names, right=lambda rows: rows == [("g1", NAME), ("g2", "Rob")])
        stored = await inn.stored()
        assert "g1" in stored
        assert NAME not in stored
        for source in SOURCES:
            done = await inn.app.projections.rebuild("board", Plan(source=source))
            assert done.events >= 3
            assert await inn.names() == [("g1", NAME), ("g2", "Rob")]
        assert (await erase(inn.service, "t1", "g1", why="asked")).proven
        async with inn.service.transaction("t1") as tx:
            assert (await inn.guests.load(tx, "g1")).state == ERASED
            assert [fact.data.name for fact in await inn.guests.history(tx, "g1")] == [ERASED]
        for source in SOURCES:
            await inn.app.projections.rebuild("board", Plan(source=source))
            assert await inn.names() == [("g1", ERASED), ("g2", "Rob")]
        await drained(inn.service)
        assert await inn.app.store.held.find(HeldFilter()) == []


async def test_a_saga_passes_on_what_it_does_not_see(inn: Inn) -> None:
    async with inn.app.running():
        await inn.publish(GuestArrived(guest_id="g1", name=NAME))
        await inn.publish(GuestRenamed(guest_id="g1", name="Grace"))
        await eventually(lambda: inn.seen)
        await drained(inn.service)
        assert NAME not in await inn.stored()
        assert inn.seen == [("greeted", NAME)]
        done = await erase(inn.service, "t1", "g1", why="asked")
        places = {one.place: (one.boxes > 0, one.opened, one.plain) for one in done.places}
        assert places["sagas"] == (True, 0, 0)
        assert done.proven


async def test_a_saga_that_stands_when_its_guest_is_erased_goes_on_with_a_placeholder(inn: Inn) -> None:
    async with inn.app.running():
        await inn.publish(GuestArrived(guest_id="g1", name=NAME))
        await drained(inn.service)
    await inn.publish(GuestRenamed(guest_id="g1", name="Grace"))
    assert (await erase(inn.service, "t1", "g1", why="asked")).proven
    async with inn.app.running():
        await eventually(lambda: inn.seen)
        await drained(inn.service)
    assert inn.seen == [("greeted", ERASED)]


async def test_a_timer_with_a_name_lies_encrypted_fires_and_is_read(inn: Inn) -> None:
    await inn.publish(GuestGreeted(guest_id="g1", words=NAME), after=0.1, timer="greet g1")
    assert NAME not in await inn.stored()
    async with inn.app.running():
        await eventually(lambda: inn.seen)
        await drained(inn.service)
        assert {one.place: one.opened for one in await prove(inn.app, "t1", "g1") if one.boxes} == {
            "outbox": 1,
            "log": 1,
        }
    assert inn.seen == [("greeted", NAME)]


async def test_what_is_sent_again_is_read_once_and_by_whoever_lacks_it_as_it_was(inn: Inn) -> None:
    async with inn.app.running():
        await inn.publish(GuestGreeted(guest_id="g1", words=NAME))
        await inn.publish(GuestGreeted(guest_id="g2", words="Bob"))
        await eventually(lambda: len(inn.seen) == 2)
        await drained(inn.service)
        (again,) = await resend([inn.app], Choice(), by="ann", why="lost")
        assert again.sent == 2
        await inn.publish(GuestGreeted(guest_id="g1", words="last"))
        await eventually(lambda: len(inn.seen) == 3)
        await drained(inn.service)
        assert await inn.app.store.held.find(HeldFilter()) == []
    assert sorted(inn.seen) == sorted([("greeted", NAME), ("greeted", "Bob"), ("greeted", "last")])


async def test_code_without_a_loop_encrypts_too_and_decides_on_what_it_reads(inn: Inn) -> None:
    await inn.app.open()

    def work() -> str:
        if inn.url.startswith("sqlite"):
            connection: Any = sqlite3.connect(inn.folder / "inn.db")
        else:
            connection = psycopg.connect(inn.url)
        with connection, inn.service.outbox.joined(connection, "t1") as tx:
            tx.publish(GuestGreeted(guest_id="g1", words=NAME))
            tx.publish(GuestGreeted(guest_id="g3", words="later"), after=0.05)
            tx.call(inn.guests.append, "g2", [GuestArrived(guest_id="g2", name="Bob")], expected="new")
            said: str = tx.call(inn.guests.decide, "g2", lambda name: GuestRenamed(guest_id="g2", name=f"{name}by"))
        connection.close()
        return said

    assert await asyncio.to_thread(work) == "Bobby"
    assert NAME not in await inn.stored()
    async with inn.app.running():
        await eventually(lambda: len(inn.seen) == 3)
        await eventually(inn.names, right=lambda rows: rows == [("g2", "Bobby")])
        await drained(inn.service)
    assert sorted(inn.seen) == [("greeted", NAME), ("greeted", "Bob"), ("greeted", "later")]


async def test_what_fails_lies_encrypted_is_edited_and_tried_again(inn: Inn) -> None:
    inn.fails = True
    async with inn.app.running():
        await inn.publish(GuestGreeted(guest_id="g1", words=NAME))
        (held,) = await eventually(lambda: inn.app.store.held.find(HeldFilter(state="dead")))
        await drained(inn.service)
        stored = await inn.stored()
        assert NAME not in stored
        assert "cannot greet" in stored, "the failure is told, without the name"
        inn.fails = False
        event, catalogue = decode_any(held.headers, held.body), inn.service.declared.catalogue
        data = with_fields(catalogue, event, {"words": "Grace-Hopper"})
        await inn.app.held.edit(held.id, data, lambda _, new: check_edit("inn", catalogue, event, new))
        await eventually(lambda: inn.seen)
        assert "Grace-Hopper" not in await inn.stored()
        await inn.publish(GuestGreeted(guest_id="g1", words="next"))
        await eventually(lambda: len(inn.seen) == 2)
    assert inn.seen == [("greeted", "Grace-Hopper"), ("greeted", "next")]


async def test_an_older_version_beside_is_encrypted_for_itself_and_read(inn: Inn) -> None:
    async with inn.app.running():
        await inn.publish(GuestNotedNew(guest_id="g1", note=NAME, stars=3))
        await eventually(lambda: len(inn.seen) == 2)
        await drained(inn.service)
        assert sorted(inn.seen) == [("new", NAME), ("old", NAME)]
        assert NAME not in await inn.stored()
        assert (await erase(inn.service, "t1", "g1", why="asked")).proven
        assert await inn.app.store.held.find(HeldFilter()) == []

"""Bookings as sagas, and a vendor that answers them: what the crash tests of sagas run in processes of their own.

`ok` is paid, `fail` is not and is undone (an undo fails once), `late` hears nothing until its deadline. `slow` is given a room
when it has ended, which is undone. The money of `early` comes before its room, and the room of `ahead` before it is started:
both wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from functools import partial
from pathlib import Path

import msgspec

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import SystemClock
from posthouse.processes import Saga, Turn, deadline, on, starts, step, undo
from posthouse.sending import RelaySettings
from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from tests.faults.kit.books import BEING_MADE, Books
from tests.faults.kit.clock import HurriedClock
from tests.faults.kit.failpoint import Failpoint, Steps
from tests.faults.kit.quiet import PENDING, TIMERS, UNRUN, UNSENT, UNSENT_IN_POSTGRES

TENANT = "t1"
BOOKINGS = ("ok", "fail", "late", "slow", "early", "ahead")
EXPIRING = ("late", "slow")
SPEED = 40.0

UNFINISHED = "SELECT count(*) FROM posthouse_saga WHERE ended_at IS NULL"
STARTED = "SELECT count(*) FROM posthouse_saga"


class About(Payload):
    booking: str


class Held(About): ...


class ReleaseRequested(About): ...


class PaymentRequested(About): ...


class Confirmed(About): ...


class Cancelled(About): ...


class Committed(About): ...


class Released(About): ...


class Captured(About): ...


class Declined(About): ...


SAID_BY_RESERVATION: dict[str, type[About]] = {
    "held": Held,
    "release.requested": ReleaseRequested,
    "payment.requested": PaymentRequested,
    "confirmed": Confirmed,
    "cancelled": Cancelled,
}
SAID_BY_VENDOR: dict[str, type[About]] = {
    "committed": Committed,
    "released": Released,
    "captured": Captured,
    "declined": Declined,
}

POLICY = Policy(first_delay=0.4, last_delay=2.0, deadline=20.0)


class Words:
    """The database's own, and the folder in which it is noted what no rollback undoes."""

    postgres = False
    folder = Path()

    @classmethod
    def sql(cls, text: str) -> str:
        numbers = itertools.count(1)
        return re.sub(r"\?", lambda _: f"${next(numbers)}", text) if cls.postgres else text


async def enter(execute: Tx | Turn, book: str, booking: str, what: str) -> None:
    """Nothing is unique here: what was done twice is seen twice."""
    await execute.execute(Words.sql(f"INSERT INTO ledger_of_{book} (booking, what) VALUES (?, ?)"), (booking, what))


class Booking(Saga):
    booking: str
    entries: int = 0

    @starts
    async def hold(self, turn: Turn) -> None:
        await self._enter(turn, "hold")
        turn.publish(Held(booking=self.booking))
        turn.set(self.expired, after=4.0 if self.booking in EXPIRING else 4000.0)

    @undo(hold)
    async def drop_hold(self, turn: Turn) -> None:
        await self._enter(turn, "drop hold")
        turn.publish(Cancelled(booking=self.booking))
        first = Words.folder / f"{self.booking}.failed"
        if self.booking == "fail" and not first.exists():
            first.touch()
            raise RuntimeError("the first time it fails")

    @deadline(4.0)
    def expired(self, turn: Turn) -> None:
        turn.compensate("expired")

    @step(Committed)
    async def room(self, event: Event[Committed], turn: Turn) -> None:
        await self._enter(turn, "room")
        turn.clear(self.expired)
        turn.publish(PaymentRequested(booking=self.booking))

    @undo(room, until=Released, within=4000.0)
    async def release(self, event: Event[Committed], turn: Turn) -> None:
        await self._enter(turn, "release")
        turn.publish(ReleaseRequested(booking=self.booking))

    @on(Declined)
    def declined(self, event: Event[Declined], turn: Turn) -> None:
        turn.compensate("declined")

    @step(Captured, after=room)
    async def paid(self, event: Event[Captured], turn: Turn) -> None:
        await self._enter(turn, "paid")
        turn.publish(Confirmed(booking=self.booking))
        turn.complete()

    async def _enter(self, turn: Turn, what: str) -> None:
        self.entries += 1
        await enter(turn, "reservation", self.booking, what)


class Scene:
    """Both services on the files of a folder, or in a database."""

    def __init__(self, folder: Path, database: str, base: float) -> None:
        Words.postgres, Words.folder = bool(database), folder
        self._folder, self._database = folder, database
        self._clock = HurriedClock(base, SPEED, 0.0)
        self.reservation, self.vendor = self._service("reservation"), self._service("vendor")
        for name, cls in SAID_BY_RESERVATION.items():
            self.reservation.event(f"{name}.v1", key="booking")(cls)
        for name, cls in SAID_BY_VENDOR.items():
            self.vendor.event(f"{name}.v1", key="booking")(cls)
        self.reservation.saga("booking", correlate="booking", policy=POLICY)(Booking)
        self._declare()

    def _declare(self) -> None:
        for service in (self.reservation, self.vendor):
            service.setup(partial(_tables, service.name))

        @self.vendor.on(Held, policy=POLICY)
        async def commit(event: Event[Held], tx: Tx) -> None:
            booking = event.data.booking
            if booking in EXPIRING or booking == "ahead":
                return
            for given in (booking, "ahead") if booking == "ok" else (booking,):
                await enter(tx, "vendor", given, "allocated")
                if given == "early":
                    tx.publish(Captured(booking=given))
                tx.publish(Committed(booking=given))

        @self.vendor.on(ReleaseRequested, policy=POLICY)
        async def free(event: Event[ReleaseRequested], tx: Tx) -> Released:
            await enter(tx, "vendor", event.data.booking, "freed")
            return Released(booking=event.data.booking)

        @self.vendor.on(PaymentRequested, policy=POLICY)
        async def charge(event: Event[PaymentRequested]) -> Captured | Declined | None:
            booking = event.data.booking
            if booking == "early":
                return None
            return Declined(booking=booking) if booking == "fail" else Captured(booking=booking)

        @self.vendor.on(Confirmed, Cancelled, policy=POLICY)
        async def outcome(event: Event[Confirmed | Cancelled], tx: Tx) -> None:
            await enter(tx, "vendor", event.data.booking, type(event.data).__name__.lower())
            if event.data.booking == "slow":
                await enter(tx, "vendor", "slow", "allocated")
                tx.publish(Committed(booking="slow"))

        @self.reservation.on(Confirmed, policy=POLICY)
        async def book_ahead(event: Event[Confirmed], tx: Tx) -> None:
            if event.data.booking == "ok":
                await self.reservation.start_saga(tx, Booking(booking="ahead"))

    def _service(self, name: str) -> Service:
        service = Service(name)
        App(
            service,
            store=self._store(name),
            broker=EmbeddedBroker(self._folder / "log.db", clock=self._clock, partitions=2, lease=6.0),
            clock=self._clock,
            settings=Settings(relay=RelaySettings(lease=10.0)),
        )
        return service

    def _store(self, name: str) -> Store:
        if not self._database:
            return SqliteStore(self._folder / f"{name}.db", clock=self._clock)
        url = f"{self._database}?application_name={name}"
        return PostgresStore(url, clock=self._clock, schema=name, writers=4, patience=5.0)


async def _tables(book: str, tx: Tx) -> None:
    await tx.execute(f"CREATE TABLE IF NOT EXISTS ledger_of_{book} (booking TEXT, what TEXT)")


class Stay(msgspec.Struct, tag=True, kw_only=True):
    """Start the bookings, unless they were, and run both services until everything has ended."""

    folder: str
    base: float
    database: str = ""
    result: str = ""
    failpoint: Failpoint = Failpoint()

    def __call__(self) -> None:
        folder = Path(self.folder)
        logging.basicConfig(
            filename=folder / "log.txt", level=logging.WARNING, format="%(process)d %(name)s %(message)s"
        )
        steps = Steps(self.failpoint)
        steps.install()
        asyncio.run(self._run(Scene(folder, self.database, self.base), steps))
        Path(self.result).write_bytes(msgspec.json.encode({"steps": steps.taken}))

    async def _run(self, scene: Scene, steps: Steps) -> None:
        services, stop = (scene.reservation, scene.vendor), asyncio.Event()
        for service in services:
            if not app_of(service).store.embedded:
                await app_of(service).store.upgrade()
        runtimes = [await app_of(service).opened.prepare() for service in services]
        steps.counting = True
        for booking in BOOKINGS[:-1]:
            async with scene.reservation.transaction(TENANT) as tx:
                await scene.reservation.start_saga(tx, Booking(booking=booking))
        async with asyncio.TaskGroup() as group:
            for runtime in runtimes:
                group.create_task(runtime.run(stop))
            await self._until_ended()
            stop.set()
        for service in services:
            await service.aclose()

    async def _until_ended(self) -> None:
        given_up = time.monotonic() + 40.0
        with Books(Path(self.folder), self.database, patience=0) as books:
            while not _ended(books):
                assert time.monotonic() < given_up, "the bookings do not end"
                await SystemClock().wait(asyncio.Event(), 0.005)


def _ended(books: Books) -> bool:
    """Along the way of an event: what was found empty stays empty."""
    unsent = {book: UNSENT_IN_POSTGRES if books.in_database(book) else UNSENT for book in ("reservation", "vendor")}
    try:
        return books.ask("reservation", STARTED)[0][0] == len(BOOKINGS) and not any(
            books.ask(book, question, parameters)[0][0]
            for book, question, parameters in (
                ("reservation", UNFINISHED, ()),
                ("reservation", TIMERS, ()),
                ("reservation", unsent["reservation"], ()),
                ("log", PENDING, ("vendor",) * 3),
                ("vendor", UNRUN, ()),
                ("vendor", unsent["vendor"], ()),
                ("log", PENDING, ("reservation",) * 3),
                ("reservation", UNRUN, ()),
                ("reservation", unsent["reservation"], ()),
            )
        )
    except BEING_MADE:
        books.close()
        return False

"""A service with something of everything: events in order that fail now and then, events that follow from them, timers,
sagas and a read model; and what each of them must have come to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from posthouse import App, Event, Payload, Policy, RelaySettings, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.errors import StoreError
from posthouse.processes import Aggregate, Model, Saga, Turn, deadline, starts, step, undo
from posthouse.processes.stream import STREAM_VERSION
from posthouse.store import HeldEvent, HeldFilter
from tests.faults.kit.report import Report

QUICK = RelaySettings(lease=9.0, idle=0.2, first_delay=0.05, last_delay=0.3)
"""A lease that outlives the crash: whoever was at work settles what it has in hand."""
POLICY = Policy(max_attempts=1000, first_delay=0.05, last_delay=0.3, deadline=2.0)
TENANT = "t1"
KEYS = ("a", "b", "c")
FAILS_EVERY = 7


class Made(Payload):
    key: str
    number: int


class Noted(Payload):
    key: str
    number: int


class Expired(Payload):
    key: str
    number: int


class Posted(Payload):
    account: str


class Asked(Payload):
    trip: str


class Answered(Payload):
    trip: str


class Trip(Saga):
    """Is answered and done; or hears nothing until its deadline, and is undone."""

    trip: str

    @starts
    async def begin(self, turn: Turn) -> None:
        await self._enter(turn, "begun")
        turn.publish(Asked(trip=self.trip))
        turn.set(self.expired, after=0.3 if self.trip.startswith("late") else 4000.0)

    @undo(begin)
    async def drop(self, turn: Turn) -> None:
        await self._enter(turn, "dropped")

    @deadline(0.3)
    def expired(self, turn: Turn) -> None:
        turn.compensate("expired")

    @step(Answered)
    async def answered(self, event: Event[Answered], turn: Turn) -> None:
        await self._enter(turn, "done")
        turn.clear(self.expired)
        turn.complete()

    async def _enter(self, turn: Turn, what: str) -> None:
        await turn.execute("INSERT INTO travelled (trip, what) VALUES ($1, $2)", (self.trip, what))


TABLES = (
    "CREATE TABLE IF NOT EXISTS said (kind text, key text, number int, PRIMARY KEY (kind, key, number))",
    "CREATE TABLE IF NOT EXISTS done (id bigint GENERATED ALWAYS AS IDENTITY, kind text, key text, number int)",
    "CREATE TABLE IF NOT EXISTS travelled (id bigint GENERATED ALWAYS AS IDENTITY, trip text, what text)",
)
SAY = "INSERT INTO said VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
DO = "INSERT INTO done (kind, key, number) VALUES ($1, $2, $3)"


class CrashPlant:
    """The service, and its aggregate. Another one on the same database says what this one has to deal with."""

    def __init__(self) -> None:
        self.service = service = Service("plant")
        App(service, settings=Settings(relay=QUICK))
        self._failed: set[int] = set()
        for name, cls in (("made", Made), ("noted", Noted), ("expired", Expired)):
            service.event(f"thing.{name}.v1", key="key")(cls)
        service.event("account.posted.v1", key="account")(Posted)
        for name, asked in (("asked", Asked), ("answered", Answered)):
            service.event(f"trip.{name}.v1", key="trip")(asked)
        service.saga("trip", correlate="trip", policy=POLICY)(Trip)
        self.accounts: Aggregate[int, Posted] = service.aggregate(
            "account", initial=int, evolve=lambda total, _: total + 1, events=(Posted,)
        )
        service.setup(_tables)
        service.on(Made, policy=POLICY)(self._make)
        service.on(Noted, Expired, policy=POLICY)(_book)
        service.on(Asked, policy=POLICY)(_answer)
        self.entries = service.projection("entries")
        self.entries.setup(_entry_table)
        self.entries.on(
            Posted, policy=Policy(grouped=True, max_attempts=1000, first_delay=0.05, last_delay=0.3, deadline=2.0)
        )(_enter)

    async def _make(self, event: Event[Made], tx: Tx) -> Noted:
        number = event.data.number
        await tx.execute(DO, ("made", event.data.key, number))
        if number % FAILS_EVERY == 0 and number not in self._failed:
            self._failed.add(number)
            raise RuntimeError("the first time it fails")
        return Noted(key=event.data.key, number=number)


async def _tables(tx: Tx) -> None:
    for table in TABLES:
        await tx.execute(table)


async def _book(event: Event[Noted | Expired], tx: Tx) -> None:
    await tx.execute(DO, (type(event.data).__name__.lower(), event.data.key, event.data.number))


async def _answer(event: Event[Asked]) -> Answered | None:
    return None if event.data.trip.startswith("late") else Answered(trip=event.data.trip)


async def _entry_table(model: Model) -> None:
    table = model.table("entry")
    await model.execute(f"CREATE TABLE {table} (account text, version int, after int, PRIMARY KEY (account, version))")


async def _enter(events: Sequence[Event[Posted]], model: Model) -> None:
    """Each posting once, and in order: `after` is the posting before it."""
    table = model.table("entry")
    for event in events:
        await model.execute(
            f"INSERT INTO {table} SELECT $1, $2, coalesce(max(version), 0) FROM {table} WHERE account = $1",
            (event.data.account, int(event.extensions[STREAM_VERSION])),
        )


class Client:
    """Says things, one after the other, each until it is told that it was said."""

    def __init__(self, plant: CrashPlant) -> None:
        self._plant = plant
        self._turn = asyncio.Lock()
        self.number = 0

    async def say(self, count: int) -> int:
        """So many more of everything; the number of the last."""
        async with self._turn:
            for _ in range(count):
                self.number += 1
                await _stubborn(self._say)
                await _stubborn(self._post)
            await _stubborn(self._start_trips)
            return self.number

    async def _say(self) -> None:
        number, key = self.number, KEYS[self.number % len(KEYS)]
        async with self._plant.service.transaction(TENANT) as tx:
            for kind in ("made", "expired"):
                await tx.execute(SAY, (kind, key, number))
            tx.publish(Made(key=key, number=number), idempotency_key=f"made {number}")
            tx.publish(
                Expired(key=key, number=number),
                idempotency_key=f"expired {number}",
                after=0.2,
                timer=f"expired {number}",
            )

    async def _post(self) -> None:
        account = KEYS[self.number % len(KEYS)]
        await self._plant.accounts.execute(account, lambda _: [Posted(account=account)], tenant=TENANT)

    async def _start_trips(self) -> None:
        async with self._plant.service.transaction(TENANT) as tx:
            for trip in (f"ok {self.number}", f"late {self.number}"):
                await tx.execute(SAY, ("trip", trip, 0))
                await self._plant.service.start_saga(tx, Trip(trip=trip))


async def _stubborn(do: Callable[[], Awaitable[None]]) -> None:
    while True:
        with contextlib.suppress(StoreError):
            return await do()
        await asyncio.sleep(0.02)


class Fact(NamedTuple):
    """Something that was said, or done."""

    kind: str
    key: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.number}"


async def is_done(service: Service, kind: str, number: int) -> bool:
    """Whether something has come to its effect."""
    async with app_of(service).store.begin() as tx:
        found = await tx.execute("SELECT count(*) FROM done WHERE kind = $1 AND number >= $2", (kind, number))
        return bool(found.scalar())


async def nothing_waits(service: Service) -> bool:
    """Whether every timer has fired, and every saga has ended."""
    async with app_of(service).store.begin() as tx:
        found = await tx.execute(
            "SELECT (SELECT count(*) FROM posthouse.timer) + (SELECT count(*) FROM posthouse.saga WHERE ended_at IS NULL)"
        )
        return found.scalar() == 0


class Findings(NamedTuple):
    """What is in the books when nothing moves any more."""

    said: list[Fact]
    done: list[Fact]
    set_aside: list[Fact]
    """Quarantined because an event that was lost with the old server has its number: told, and nowhere applied."""
    trips: dict[str, str]
    streams: list[tuple[object, ...]]
    entries: list[tuple[object, ...]]


async def set_aside(service: Service) -> list[Fact]:
    """What was quarantined because its number belongs to another event."""
    held = await app_of(service).store.held.find(HeldFilter(state="quarantined"), limit=10_000)
    return [fact for one in held if "fork" in one.reason and (fact := _fact_of(one))]


async def found(service: Service) -> Findings:
    """Read the books."""
    async with app_of(service).store.begin() as tx:
        said = await tx.execute("SELECT kind, key, number FROM said ORDER BY number")
        done = await tx.execute("SELECT kind, key, number FROM done ORDER BY id")
        trips = await tx.execute("SELECT trip, string_agg(what, ' ' ORDER BY id) FROM travelled GROUP BY trip")
        streams = await tx.execute("SELECT stream, version, version, version FROM posthouse.stream ORDER BY stream")
        live = await app_of(service).store.projections.live(tx, "plant.entries")
        entries = await tx.execute(
            "SELECT account, count(*), max(version), count(*) FILTER (WHERE after = version - 1) "
            f"FROM entries_entry_{live} GROUP BY account ORDER BY account"
        )
    return Findings(
        said=[Fact(str(kind), str(key), int(str(number))) for kind, key, number in said],
        done=[Fact(str(kind), str(key), int(str(number))) for kind, key, number in done],
        set_aside=await set_aside(service),
        trips={str(trip): str(what) for trip, what in trips},
        streams=list(map(tuple, streams)),
        entries=list(map(tuple, entries)),
    )


def _fact_of(held: HeldEvent) -> Fact | None:
    data = msgspec.json.decode(held.body)["data"]
    return Fact(held.type.split(".")[-2], data["key"], data["number"]) if "number" in data else None


async def verdict(service: Service, *, lossy: bool = False) -> Report:
    """What the server has, against what became of it. With `lossy` the server lost commits: what followed from them while
    it still had them may be there, and whoever got their numbers afterwards may be set aside."""
    books = await found(service)
    report = _facts(books, lossy=lossy) + _trips(books)
    wrong = [] if books.streams == books.entries else [f"read model {books.entries}, events {books.streams}"]
    posted, entered = (sum(int(str(row[1])) for row in rows) for rows in (books.streams, books.entries))
    return report + Report(committed=posted, applied=entered, imbalance=wrong)


def _facts(books: Findings, *, lossy: bool) -> Report:
    """Each once; those of a kind and key in the order in which they were said, except timers, which have none."""
    aside = set(books.set_aside) if lossy else set()
    said = {fact for fact in books.said if fact.kind != "trip"}
    followed = {Fact("noted", key, number) for kind, key, number in books.done if kind == "made"}
    wanted, times = (said | followed) - aside, Counter(books.done)
    known = {(fact.key, fact.number) for fact in books.said}
    unexpected = [
        one for one in times if one not in said | followed and not (lossy and (one.key, one.number) not in known)
    ]
    lines: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for kind, key, number in books.done:
        if kind != "expired":
            lines[kind, key].append(number)
    return Report(
        committed=len(wanted),
        applied=len(books.done),
        lost_middle=[str(one) for one in sorted(wanted) if one not in times],
        duplicated=[str(one) for one, count in times.items() if count > 1],
        unexpected=list(map(str, unexpected)),
        out_of_order=[f"{line}: {numbers}" for line, numbers in lines.items() if numbers != sorted(numbers)],
    )


def _trips(books: Findings) -> Report:
    """Those that are answered are done, the others are undone, and nothing is done twice."""
    ends = {
        fact.key: "begun dropped" if fact.key.startswith("late") else "begun done"
        for fact in books.said
        if fact.kind == "trip"
    }
    return Report(
        committed=len(ends),
        applied=len(books.trips),
        lost_middle=sorted(ends.keys() - books.trips.keys()),
        unexpected=sorted(books.trips.keys() - ends.keys()),
        imbalance=[f"{trip}: {what}" for trip, what in books.trips.items() if what != ends.get(trip, what)],
    )

"""Capturing: an outbox that keeps what is said for the test, and sends nothing. For tests of endpoints.

Facts are validated as ever, and follow the transaction that they were added to: one that is rolled back, or its savepoint, takes them
with it. Neither the tables of Posthouse nor a broker are needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from posthouse.app import App, apps_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError, StoreError
from posthouse.events import Event, decode_any
from posthouse.local.url import joined, split
from posthouse.service import Service
from posthouse.store import OutboxRow, Parameters, Rows, Store, Timer, Transaction
from posthouse.store.outbox import Number
from posthouse.store.savepoints import COMMITS, Detach, Fate, Savepoints, Step
from posthouse.store.wording import text_of
from posthouse.stores import open_store
from posthouse.stores.sessions import Kind, Session, original_of, refusal, session_of
from posthouse.testing.scratch import at_hand

T = TypeVar("T")

# Which database it is, and whether an event could be added.
WHERE = "SELECT current_database(), current_setting('transaction_read_only')"

FOR_TESTS = re.compile(r"(?<![a-z])tests?(?![a-z])", re.IGNORECASE)
"""A word in the name of a database that is for tests, as those of the plugin and of Django are called."""

NOT_HERE = (
    "is not captured: a transaction whose facts are captured has no tables of Posthouse. Test it with the Harness"
)


class Later(NamedTuple, Generic[T]):
    """A fact that is said after so many seconds, unless the timer of this name is cancelled."""

    event: Event[T]
    after: float
    timer: str


class Said:
    """What was said, in order: facts whose transaction was committed, or is open and was not rolled back."""

    def __init__(self) -> None:
        self._books: list[Book] = []

    def of(self, event: type[T]) -> list[Event[T]]:
        """The facts of one type."""
        event_type = event_type_of(event)
        found = (decode_any(row.headers, row.body) for row in self.rows())
        return [e.with_data(event_type.payload.decode(e.data)) for e in found if e.type == event_type.name]

    def later(self, event: type[T]) -> list[Later[T]]:
        """The facts of one type that are to be said later."""
        event_type = event_type_of(event)
        found = [(decode_any(timer.row.headers, timer.row.body), timer) for timer in self._timers().values()]
        return [
            Later(e.with_data(event_type.payload.decode(e.data)), timer.after or 0.0, timer.name)
            for e, timer in found
            if e.type == event_type.name
        ]

    @property
    def subjects(self) -> list[str]:
        """The types of all facts, in order: to see that nothing else was said."""
        return [decode_any(row.headers, row.body).type for row in self.rows()]

    def book(self, theirs: object = None) -> Book:
        """For one more transaction, or those of one connection of theirs."""
        self._books.append(Book(theirs))
        return self._books[-1]

    def rows(self) -> Iterator[OutboxRow]:
        entries = sorted(entry for book in self._books for entry in book.entries)
        return (entry.said for entry in entries if isinstance(entry.said, OutboxRow))

    def _timers(self) -> Mapping[tuple[str, str], Timer]:
        """Those that stand: set, and not replaced or cancelled since."""
        found: dict[tuple[str, str], Timer] = {}
        for entry in sorted(entry for book in self._books for entry in book.entries):
            if isinstance(entry.said, Timer):
                found[entry.said.row.tenant, entry.said.name] = entry.said
            elif isinstance(entry.said, tuple):
                found.pop(entry.said, None)
        return found

    def cancels(self, tenant: str, name: str) -> bool:
        return (tenant, name) in self._timers()


class Entry:
    """Something that was said: a row, a timer, or the tenant and name of a timer that was cancelled."""

    count = 0

    def __init__(self, said: OutboxRow | Timer | tuple[str, str]) -> None:
        Entry.count += 1
        self._number = Entry.count
        self.said = said

    def __lt__(self, other: Entry) -> bool:
        return self._number < other._number


class Book(Savepoints):
    """What was said on one connection: it hears of savepoints and of the end of the transaction."""

    __slots__ = ("_aborted", "_committed", "_last", "_open", "detach", "over", "theirs")

    def __init__(self, theirs: object = None) -> None:
        super().__init__()
        self.theirs = theirs
        self._committed: list[Entry] = []
        self._last = 0
        """How many had been committed before the last commit, which may turn out to have failed."""
        self._open: list[Entry] = []
        self._aborted = False
        """Whether a statement has failed in PostgreSQL: then a COMMIT rolls back, and says that it has succeeded."""
        self.detach: Detach | None = None
        self.over = False
        """Whether the transaction that it listened to has ended."""
        self.follow(self)

    @property
    def entries(self) -> Sequence[Entry]:
        return [*self._committed] if _is_closed(self.theirs) else [*self._committed, *self._open]

    def add(self, said: Iterable[OutboxRow | Timer | tuple[str, str]]) -> None:
        self._open += map(Entry, said)

    def mark(self) -> int:
        return len(self._open)

    def rewind(self, mark: int | None) -> None:
        del self._open[mark or 0 :]

    def ended(self, fate: Fate, error: BaseException | None) -> None:
        """It hears of that by itself."""

    def hear_failed(self, sql: object, error: BaseException | None = None) -> None:
        """A commit that failed, or that nobody knows of, was none."""
        if COMMITS.match(text_of(sql).strip()):
            self.hear_of_end()
        else:
            self._aborted = self._aborted or _aborts(error)

    def hear_of_no_commit(self) -> None:
        del self._committed[self._last :]

    def take(self, step: Step) -> None:
        """One that was set before anybody listened holds all that was said since."""
        if step.verb == "roll back":
            self._aborted = False
        if step.verb == "roll back" and self._latest(step.name) is None:
            self.rewind(None)
            self._set.clear()
        else:
            super().take(step)

    def hear_of_end(self, *, committed: bool = False) -> None:
        self._last = len(self._committed)
        if committed and not self._aborted:
            self._committed += self._open
        self._open, self.over, self._aborted = [], True, False
        self._set.clear()


class CapturedJoined:
    """A transaction that the user began; a `Transaction`."""

    submit = None

    def __init__(self, session: Session, kind: Kind, capturing: CapturingStore) -> None:
        self.session = session
        self.needs_loop = session.needs_loop
        self.savepoints = Savepoints(late=session.late)
        self._kind = kind
        self._capturing = capturing

    @property
    def connection(self) -> object:
        return self.session.theirs

    async def attend(self) -> Detach:
        await self.session.refuse_autocommit(self._kind)
        await self.book()
        return await self.session.attend(self.savepoints)

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        return await self.session.run(sql, parameters)

    async def book(self) -> Book:
        """Where it is written down, after making sure that it is in a transaction, which an INSERT would have begun here."""
        await self.session.refuse_autocommit(self._kind)
        if self._kind == "PostgreSQL":
            database, read_only = (await self.session.ours(WHERE, ()))[0]
            refuse_other(database)
            if read_only == "on":
                raise StoreError("the transaction is READ ONLY: an event cannot be added in it")
        elif getattr(self.session.theirs, "in_transaction", True) is False:
            await self.session.ours("BEGIN", ())
        if self.session.late:
            await asyncio.sleep(0)  # what was done before is heard of with the loop's next turn
        return await self._capturing.book_of(self.session)


class CapturedBlock:
    """A transaction that the service began, on its own database."""

    def __init__(self, inner: AbstractAsyncContextManager[Transaction], book: Book) -> None:
        self._inner = inner
        self._book = book
        self._transaction: Any = None

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._inner.__aenter__()
        return cast("Transaction", self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._inner.__aexit__(kind, error, trace)
        except BaseException:
            self._book.hear_of_end()
            raise
        self._book.hear_of_end(committed=error is None)

    async def book(self) -> Book:
        return self._book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


class CapturedOutbox:
    """Keeps what is added; a relay finds nothing in it."""

    def __init__(self, inner: object, said: Said) -> None:
        self._inner = inner
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(
        self, tx: Transaction, rows: Sequence[OutboxRow], *, with_commit: bool = False, numbered: bool = False
    ) -> Sequence[str]:
        given = await self.number(tx, rows)
        (await _book(tx)).add(row for row, number in zip(rows, given, strict=True) if number.fresh)
        return [number.stands for number in given]

    async def number(self, tx: Transaction, rows: Sequence[OutboxRow]) -> Sequence[Number]:
        """Each as if those before it were said; what is kept here is counted from 1."""
        await _book(tx)
        said, given = [*self._said.rows()], list[Number]()
        for row in rows:
            intent, line = _intent(row), _line(row)
            standing = None if intent is None else next((one for one in said if _intent(one) == intent), None)
            number = 1 + sum(line == _line(one) for one in said)
            if standing is None:
                said.append(row)
                given.append(Number(row.event_id, True, None if line is None else number, 1))
            else:
                given.append(Number(standing.event_id, False, None, 1))
        return given


class CapturedTimers(CapturedOutbox):
    """Keeps timers; none goes off."""

    async def set(self, tx: Transaction, timer: Timer) -> None:
        (await _book(tx)).add([timer])

    async def cancel(self, tx: Transaction, tenant: str, name: str) -> bool:
        book, there = await _book(tx), self._said.cancels(tenant, name)
        book.add([(tenant, name)])
        return there


def _intent(row: OutboxRow) -> tuple[str, str, str] | None:
    return None if row.idempotency_key is None else (row.tenant, row.topic, row.idempotency_key)


def _line(row: OutboxRow) -> tuple[str, str, str] | None:
    """What it is numbered in."""
    return (row.tenant, row.topic, row.key) if row.numbered and row.key is not None else None


class Elsewhere:
    """A table that takes no part."""

    def __init__(self, inner: object, what: str) -> None:
        self._inner = inner
        self._what = what

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        async def refusing(*arguments: Any, **options: Any) -> Any:
            if arguments and isinstance(arguments[0], CapturedJoined | CapturedBlock):
                raise ConfigurationError(f"{self._what} {NOT_HERE}")
            return await found(*arguments, **options)

        return refusing


class CapturingStore:
    """A store whose facts are captured. What runs beside it, such as a relay that a lifespan starts, has an empty store in memory.
    Transactions of the service itself are begun on its own database."""

    def __init__(self, url: str, said: Said, clock: Any) -> None:
        self._url = url
        self._said = said
        self._clock = clock
        self._kind: Kind = "PostgreSQL" if url.startswith("postgres") else "SQLite"
        self._own: Store | None = None
        self._books: dict[int, tuple[object, Book]] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        """A service that was closed may be opened again."""
        self._inner = inner = open_store("sqlite://", clock=self._clock)
        self.outbox = CapturedOutbox(inner.outbox, self._said)
        self.timers = CapturedTimers(inner.timers, self._said)
        self.sagas = Elsewhere(inner.sagas, "a saga")
        self.streams = Elsewhere(inner.streams, "an aggregate")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def join(self, theirs: object) -> Transaction:
        if isinstance(theirs, CapturedBlock):
            return cast("Transaction", theirs)
        return cast("Transaction", CapturedJoined(session_of(theirs, self._kind), self._kind, self))

    def begin(self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False) -> CapturedBlock:
        if self._own is None:
            if self._kind == "PostgreSQL":
                refuse_other(unquote(urlsplit(self._url).path.removeprefix("/")))
            self._own = _without_tables(self._url, self._clock)
        return CapturedBlock(self._own.begin(shape, tenant=tenant), self._said.book())

    async def append_after(self, sql: str, parameters: Parameters, row: OutboxRow) -> bool | None:
        return None  # in a block of its own

    def refusal(self, shape: type, *, plain: bool) -> str | None:
        return refusal(shape, self._kind, plain=plain)

    @property
    def began(self) -> bool:
        """Whether connections of its own are open."""
        return self._own is not None

    async def aclose(self) -> None:
        await self._inner.aclose()
        self._begin_anew()
        if self._own is not None:
            await self._own.aclose()
            self._own = None

    async def book_of(self, session: Session) -> Book:
        """What was said on their connection, which is listened to until its transaction ends."""
        _, book = self._books.get(id(session.theirs), (None, None))
        if book is None:
            book = self._said.book(session.theirs)
            self._books[id(session.theirs)] = session.theirs, book
        if book.over and book.detach is not None:
            book.detach()
            book.detach = None
        if book.detach is None:
            book.over = False
            book.detach = await session.attend(book)
        return book

    def let_go(self) -> None:
        """Listen to nobody any more."""
        for _, book in self._books.values():
            if book.detach is not None:
                with contextlib.suppress(Exception):  # a connection that was closed cannot be told
                    book.detach()
                book.detach = None
        self._books.clear()


class capture_outbox:
    """`with capture_outbox(shop) as said:` what services say in the block is kept in `said`, and goes nowhere. `async with` where your
    code begins transactions of the service itself (`service.transaction()`), or runs it (`service.running()`)."""

    def __init__(self, *services: Service) -> None:
        if not services:
            raise ConfigurationError("whose outbox? capture_outbox(shop)")
        self._services = services
        self._before: list[tuple[App, Any, Any, CapturingStore]] = []

    def __enter__(self) -> Said:
        said = Said()
        for app in apps_of(self._services):
            store = CapturingStore(_url_of(app), said, app.clock)
            self._before.append((app, app._given, app._opened, store))
            app._given = cast("Store", store), MemoryBroker(clock=app.clock)
            app._opened = None
        return said

    def __exit__(self, *_: object) -> None:
        left = [app.opened.name for app, _, _, store in self._before if store.began]
        self._restore()
        if left:
            raise ConfigurationError(
                f"{', '.join(left)} began transactions of its own: write `async with capture_outbox(…)`"
            )

    async def __aenter__(self) -> Said:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        stores = [store for _, _, _, store in self._before]
        self._restore()
        for store in stores:
            await store.aclose()

    def _restore(self) -> None:
        for app, given, opened, store in self._before:
            store.let_go()
            app._given, app._opened = given, opened
        self._before.clear()


def _url_of(app: App) -> str:
    """Where the App has its store; also of one that was given as it is."""
    given = app._given[0]
    if given is not None and not isinstance(given, str):
        return str(getattr(getattr(given, "_database", None), "url", "sqlite://"))
    url = app.opened.ports.store_url
    if url.startswith("django:"):
        from posthouse.local.django import database_of

        return joined(database_of(split(url)))
    return url


def refuse_other(database: object) -> None:
    """Where this session made a database for its tests, ConfigurationError for one that is not for tests: an engine that was made
    too early writes to it, and the test passes."""
    if at_hand and not FOR_TESTS.search(str(database)):
        made = ", ".join(scratch.name for scratch in at_hand.values())
        raise ConfigurationError(
            f"the code under test is connected to the database {str(database)!r}, and this session made {made} for its tests: set its URL "
            "from the fixture `posthouse_url` before the application is imported. A database that is for tests has `test` in its name"
        )


def _is_closed(theirs: object) -> bool:
    """Whether a connection is known to be closed: what was open there was rolled back. A session of SQLAlchemy tells by itself."""
    closed = getattr(theirs, "is_closed", getattr(theirs, "closed", False))
    try:
        return bool(closed() if callable(closed) else closed)
    except Exception:
        return False  # one of a pool, that was given back


def _aborts(error: BaseException | None) -> bool:
    """Whether PostgreSQL itself refused a statement, and not a driver before it was sent: nothing else is done in its transaction."""
    original = None if error is None else original_of(error)
    for one in (original, getattr(original, "__cause__", None)):
        told = getattr(getattr(one, "diag", None), "severity", None), getattr(one, "severity", None)
        if any(isinstance(word, str) for word in told):
            return True
    return False


async def _book(tx: Transaction) -> Book:
    if isinstance(tx, CapturedJoined | CapturedBlock):
        return await tx.book()
    raise ConfigurationError(f"a {type(tx).__name__} {NOT_HERE}")


def _without_tables(url: str, clock: Any) -> Store:
    """A store for transactions alone, that does not miss its tables."""
    store: Any = open_store(url, clock=clock)
    if url.startswith("postgres"):
        from posthouse.stores.postgres.schema import Place

        store._database.place = store._application.place = Place("captured", 1)
    else:
        store._database._shards = 1
    return cast("Store", store)

"""Sessions: the connections and sessions of the libraries that users have. One module per library serves both ways: a
transaction that the user began (to send in it), and a handler's, in the shape that it asks for (to receive).

Another library is a module here and a line in LIBRARIES. A module is imported when an object or a shape of its library is met, so
it may import that library as it likes. It has `join(theirs)`, which gives a `Session` or None; and where shapes are begun `on`
it, `handlers(host)`, which gives `Handlers` (see `handler.py`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Literal, NamedTuple

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows
from posthouse.store.savepoints import Detach, Savepoints

Kind = Literal["PostgreSQL", "SQLite"]


class Shape(NamedTuple):
    """What a handler may ask its transaction to be."""

    kind: Kind
    name: str
    """Where the class is to be had."""
    on: str
    """The module here on whose connection it is begun."""
    plain: bool | None = None
    """For a plain function, or for an asynchronous one; None: for both."""
    made: bool = False
    """It is made for each transaction, so that a class built on it does as well."""


class Library(NamedTuple):
    """A library, by the package that its classes come from."""

    package: str
    joins: str
    """What of it can be joined, in words."""
    kinds: tuple[Kind, ...]
    shapes: tuple[Shape, ...] = ()
    wraps: bool = False
    """It wraps the errors of a driver into its own."""


DJANGO = "django.db.backends.base.base.BaseDatabaseWrapper"
ALCHEMY = "sqlalchemy.ext.asyncio"
LIBRARIES = (
    Library("sqlite3", "sqlite3.Connection", ("SQLite",), (Shape("SQLite", "sqlite3.Connection", "sqlite3"),)),
    Library("aiosqlite", "aiosqlite.Connection", ("SQLite",)),
    Library(
        "asyncpg", "asyncpg.Connection", ("PostgreSQL",), (Shape("PostgreSQL", "asyncpg.Connection", "asyncpg", False),)
    ),
    Library(
        "psycopg",
        "psycopg's Connection and AsyncConnection",
        ("PostgreSQL",),
        (Shape("PostgreSQL", "psycopg.Connection", "psycopg", True),),
    ),
    Library(
        "django",
        "Django's connection",
        ("PostgreSQL", "SQLite"),
        (Shape("PostgreSQL", DJANGO, "django", True, made=True),),
        wraps=True,
    ),
    Library(
        "sqlalchemy",
        "SQLAlchemy's Session, AsyncSession, Connection and AsyncConnection",
        ("PostgreSQL", "SQLite"),
        (
            Shape("PostgreSQL", "sqlalchemy.orm.Session", "psycopg", True, made=True),
            Shape("PostgreSQL", "sqlalchemy.Connection", "psycopg", True),
            Shape("PostgreSQL", f"{ALCHEMY}.AsyncSession", "sqlalchemy", False, made=True),
            Shape("PostgreSQL", f"{ALCHEMY}.AsyncConnection", "sqlalchemy", False),
            Shape("SQLite", "sqlalchemy.orm.Session", "sqlite3", made=True),
            Shape("SQLite", "sqlalchemy.Connection", "sqlite3"),
        ),
        wraps=True,
    ),
)


class Session:
    """A connection or session of the user's, in a transaction that he began and will end. Nothing here begins or commits, and
    the library's own errors come out as they are. One that needs no event loop never waits."""

    needs_loop = False
    late = False
    """It tells of savepoints with the event loop's next turn."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def attend(self, savepoints: Savepoints) -> Detach:
        """Tell of every savepoint that the user sets, releases and rolls back, and of the end of all; what ends that."""
        raise NotImplementedError

    async def refuse_autocommit(self, kind: Kind) -> None:
        """ConfigurationError when each statement would be a transaction of its own, or the database is of another kind."""
        raise NotImplementedError

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        """Run one of the user's statements, in the driver's own style or with `:name`."""
        raise NotImplementedError

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Run one of the store's statements, whose parameters are in the store's own style (`$1`, `?`)."""
        return await self.run(sql, parameters)

    async def memory(self) -> MutableMapping[str, object]:
        """What was found out about this connection; it is forgotten with it, where not at once."""
        return {}


def session_of(theirs: object, kind: Kind) -> Session:
    """The session that their object is. ConfigurationError, with what can be joined, when it is none."""
    known = [library for library in LIBRARIES if kind in library.kinds]
    for library in known:
        if comes_from(type(theirs), library.package):
            session: Session | None = module_of(library.package).join(theirs)
            if session is not None:
                return session
    named = f"{type(theirs).__module__}.{type(theirs).__qualname__}"
    raise ConfigurationError(
        f"cannot join a {named}: supported on {kind} are {', '.join(library.joins for library in known)}"
    )


def shape_of(wanted: type, kind: Kind) -> Shape | None:
    """The shape that a handler asks for; None when no library has it. ImportError when what it needs is not installed."""
    for shape in _shapes(kind):
        if comes_from(wanted, shape.name.partition(".")[0]):
            module, _, name = shape.name.rpartition(".")
            cls = getattr(importlib.import_module(module), name)
            if issubclass(wanted, cls) if shape.made else issubclass(cls, wanted):
                return shape
    return None


def refusal(wanted: type, kind: Kind, *, plain: bool) -> str | None:
    """Why a handler, a `plain` function or an asynchronous one, cannot have this shape; None when it can."""
    named = f"{wanted.__module__}.{wanted.__qualname__}"
    try:
        shape = shape_of(wanted, kind)
        if shape is not None and shape.plain in (plain, None):
            importlib.import_module(shape.on)
            return None
    except ImportError as error:
        return f"{named} needs {error.name}, which is not installed"
    possible = ", ".join(shape.name for shape in _shapes(kind) if shape.plain in (plain, None))
    who = "a plain function" if plain else "an async function"
    there = ". A store on PostgreSQL has it; in a test: Harness(…, store=posthouse_store)"
    elsewhere = there if kind == "SQLite" and _suits(wanted, "PostgreSQL", plain) else ""
    return f"{who} cannot have the transaction as {named} on {kind}: possible are {possible}{elsewhere}"


def _suits(wanted: type, kind: Kind, plain: bool) -> bool:
    with contextlib.suppress(ImportError):
        shape = shape_of(wanted, kind)
        return shape is not None and shape.plain in (plain, None)
    return False


def put_before(target: Any, **functions: Callable[..., Any]) -> Detach:
    """Have these called in place of methods of one object, which they call themselves; what ends that. Blocks may be nested."""
    before = {name: vars(target).get(name) for name in functions}
    for name, function in functions.items():
        setattr(target, name, function)

    def end() -> None:
        for name, function in before.items():
            if function is None:
                delattr(target, name)
            else:
                setattr(target, name, function)

    return end


def module_of(package: str) -> Any:
    """The module here that serves a library."""
    return importlib.import_module(f"{__name__}.{package}")


def comes_from(kind: type, *packages: str) -> bool:
    """Whether a class, or one that it is built on, belongs to a library: asked so, nothing has to be imported."""
    return any(base.__module__.partition(".")[0] in packages for base in kind.__mro__)


def original_of(error: BaseException) -> BaseException:
    """The driver's own error inside what a library made of it."""
    wrapping = [library.package for library in LIBRARIES if library.wraps]
    while comes_from(type(error), *wrapping):
        inner = getattr(error, "orig", None) or error.__cause__
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def autocommit(remedy: str) -> ConfigurationError:
    """The refusal of a connection that commits by itself."""
    return ConfigurationError(
        "no transaction is open and the connection commits every statement by itself (autocommit), so the event would not commit "
        f"together with your rows: {remedy}"
    )


def elsewhere(session: str, found: str, kind: Kind) -> ConfigurationError:
    """The refusal of a database of another kind."""
    return ConfigurationError(f"{session} talks to {found}, the store is {kind}: events and rows must share a database")


def _shapes(kind: Kind) -> Iterator[Shape]:
    return (shape for library in LIBRARIES for shape in library.shapes if shape.kind == kind)

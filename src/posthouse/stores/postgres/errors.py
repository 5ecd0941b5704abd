"""Errors: what PostgreSQL and its drivers say, in our words. Mapped here and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import asyncpg

from posthouse.errors import (
    ConfigurationError,
    PosthouseError,
    StoreBusy,
    StoreCollision,
    StoreError,
    StoreFull,
    StoreOutdated,
    StoreUnavailable,
    ValueRefused,
)
from posthouse.stores.sessions import comes_from, original_of
from posthouse.stores.sessions.refusing import PASSED_OVER

FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What asyncpg raises. A lost connection may be any of them."""

TRY_AGAIN = {
    "25006": "this server takes no writes: it is a standby, or was demoted",
    "53200": "the server has no memory left",
    "53300": "the server takes no more connections: raise max_connections, or lower `writers`",
    "57P01": "the server is being stopped",
    "57P02": "the server is restarting after a crash",
    "57P03": "the server is starting or stopping",
    "58030": "the server had an I/O error",
    "PH003": "a poll must run on its own",
    "PH004": "what one run of a server said is not used in another",
}
COLLISIONS = {
    "40001": "two transactions could not both be true: run the whole transaction again",
    "40P01": "two transactions waited for each other: run the whole transaction again",
}
DISK_FULL, NOT_PRIMARY, LOCKED = "53100", "25006", "55P03"
NOT_ALLOWED, BY_POLICY = "42501", "ExecWithCheckOptions"
"""The code has many causes, in many languages; the function of the server that says so tells row-level security."""
CONNECTION_CLASS = "08"
QUOTING_CLASSES = ("22", "23")
"""The server quotes what it was given, be it a whole row: after the first line, and as the cause, nothing is told of these."""
VALUE_CLASSES = ("22", "54")
"""A value out of range or of another type, and one that is too large for a row of an index."""
CONFUSED = "the server is away, or its connection was lost while it had something to answer"
"""What it means when asyncpg finds its own state impossible, such as `cannot switch to state 12`."""
LOST_DURING_COMMIT = ("57P01", "57P02", "57P03")
OTHER_DATABASE, OTHER_SHARDS, FENCED, FORK = "PH001", "PH002", "PH005", "PH006"
"""Raised by our own functions; see functions/."""
FAILED_BEFORE = "25P02"
NO_TABLES = ("3F000", "42P01", "42883", "P0002")
"""Schema, table, function or row missing."""


def sqlstate_of(error: BaseException) -> str:
    """The five characters by which PostgreSQL names an error, from any driver; empty where there are none."""
    for name in ("sqlstate", "pgcode"):  # asyncpg and psycopg, psycopg2
        code = getattr(error, name, None)
        if isinstance(code, str):
            return code
    first = error.args[0] if error.args else None
    return str(first.get("C", "")) if isinstance(first, dict) else ""  # pg8000


def _said_by(error: BaseException) -> str:
    """The function of the server that raised an error, from any driver."""
    named = getattr(error, "server_source_function", None) or getattr(
        getattr(error, "diag", None), "source_function", ""
    )
    first = error.args[0] if error.args else None
    return str(named or (first.get("R", "") if isinstance(first, dict) else ""))  # asyncpg, psycopg, pg8000


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that nobody knows what the server did last."""
    code = sqlstate_of(error)
    if code:
        return code.startswith(CONNECTION_CLASS) or code in LOST_DURING_COMMIT
    if isinstance(error, asyncpg.InterfaceError):
        return any(word in str(error) for word in ("is closed", "is closing", "released back"))
    if comes_from(type(error), "psycopg", "psycopg2"):  # what the server says has a code, so this is the driver's word
        return type(error).__name__ in ("OperationalError", "InterfaceError")
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError)


def translated(error: BaseException, doing: str) -> PosthouseError:
    """The error of our tree that says the same."""
    code = sqlstate_of(error)
    text = f"{doing}: {_said(error, code) or type(error).__name__}"
    if code == DISK_FULL:
        return StoreFull(f"{text}: nothing was written; free some space and it goes on")
    if code == LOCKED:
        return StoreBusy(f"{text} (a lock was not to be had in time)")
    if code in COLLISIONS:
        return StoreCollision(f"{text} ({COLLISIONS[code]})")
    if code in TRY_AGAIN:
        return StoreUnavailable(f"{text} ({TRY_AGAIN[code]})")
    if code.startswith(CONNECTION_CLASS) or (not code and is_lost(error)):
        return StoreUnavailable(text)
    if code == FAILED_BEFORE:
        return StoreError(f"{doing}: {PASSED_OVER}")
    if code == OTHER_DATABASE:
        return ConfigurationError(
            "the connection is to another database than the store: events are added in the store's own database, or they "
            "could not commit with your rows"
        )
    if code == NOT_ALLOWED and _said_by(error) == BY_POLICY:
        return ConfigurationError(
            f"{text}: the row is of another tenant than the one that the transaction works for, or it works for none. Say "
            "SELECT set_config('posthouse.tenant', …, true) first, in the same transaction; those of the service and of its "
            "handlers have said it"
        )
    if code == OTHER_SHARDS:
        return ConfigurationError(f"{error}: the number is fixed at creation, so leave `shards` out of the store's URL")
    if code[:2] in VALUE_CLASSES or (not code and isinstance(error, ValueError | TypeError)):
        return ValueRefused(text)
    return StoreError(str(error) if code == FORK else text)


def _said(error: BaseException, code: str) -> str:
    if isinstance(error, asyncpg.InternalClientError):
        before = error.__cause__ or error.__context__
        known = before is not None and is_foreign(before) and not isinstance(before, asyncpg.InternalClientError)
        return f"{CONFUSED}{f': {before}' if known and str(before) else ''}"
    return str(error).partition("\n")[0] if code[:2] in QUOTING_CLASSES else str(error)


def cause_of(error: BaseException) -> BaseException | None:
    """What an error of ours names as its cause where a statement of our own ended with `error`: what the driver raised. A library
    adds the statement and its parameters to it, and those are the event."""
    original = original_of(error)
    return None if sqlstate_of(original)[:2] in QUOTING_CLASSES else original


def is_foreign(error: BaseException) -> bool:
    """Whether a driver raised it."""
    return (
        isinstance(error, FOREIGN)
        or bool(sqlstate_of(error))
        or comes_from(type(error), "psycopg", "psycopg2", "pg8000")
    )


def database_trouble(error: BaseException, *, lost: bool) -> PosthouseError | None:
    """What left a block, if it is the database's fault and not that of the code inside: the server ended the transaction
    for another one's sake, or the connection is `lost` and the error says so."""
    original = original_of(error)
    if isinstance(original, PosthouseError):
        return None
    if sqlstate_of(original) in COLLISIONS or (lost and is_lost(original)):
        return translated(original, "in the transaction")
    return None


def outdated(error: BaseException, doing: str) -> PosthouseError:
    """`translated`, for a statement of ours alone: what it lacks is our tables."""
    if sqlstate_of(error) in NO_TABLES:
        return StoreOutdated(
            f"{doing}: {error}: run `posthouse db upgrade TARGET`, your module:service or the URL of the store"
        )
    return translated(error, doing)


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Turn asyncpg's errors into ours."""
    try:
        yield
    except FOREIGN as error:
        raise translated(error, doing) from error

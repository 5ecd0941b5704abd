from __future__ import annotations

from collections.abc import Callable

import asyncpg
import psycopg
import pytest
from django.db import OperationalError
from psycopg import errors as psycopg_errors
from sqlalchemy.exc import DBAPIError

from posthouse.errors import (
    ConfigurationError,
    PosthouseError,
    StoreCollision,
    StoreError,
    StoreFull,
    StoreOutdated,
    StoreUnavailable,
)
from posthouse.stores.postgres.errors import (
    database_trouble,
    is_lost,
    mapped,
    outdated,
    sqlstate_of,
    translated,
)
from posthouse.stores.sessions import original_of


def said(code: str) -> asyncpg.PostgresError:
    """What asyncpg makes of an error of the server."""
    return asyncpg.PostgresError.new({"C": code, "M": "no"})


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (said("40001"), StoreCollision),
        (said("40P01"), StoreCollision),
        (said("25006"), StoreUnavailable),
        (said("53300"), StoreUnavailable),
        (said("57P01"), StoreUnavailable),
        (said("08006"), StoreUnavailable),
        (said("PH004"), StoreUnavailable),
        (said("53100"), StoreFull),
        (said("PH001"), ConfigurationError),
        (said("57014"), StoreError),
        (said("23505"), StoreError),
        (said("42P01"), StoreError),
        (psycopg_errors.DiskFull(), StoreFull),
        (psycopg_errors.SerializationFailure(), StoreCollision),
        (psycopg.OperationalError("server closed the connection unexpectedly"), StoreUnavailable),
        (psycopg.ProgrammingError("the query has 1 placeholder but 2 parameters were passed"), StoreError),
        (ConnectionResetError(), StoreUnavailable),
        (TimeoutError(), StoreUnavailable),
        (asyncpg.InterfaceError("the connection is closed"), StoreUnavailable),
        (asyncpg.InterfaceError("another operation is in progress"), StoreError),
        (asyncpg.InternalClientError("cannot switch to state 15"), StoreUnavailable),
    ],
)
def test_each_foreign_error_has_one_of_ours(error: BaseException, ours: type[PosthouseError]) -> None:
    assert type(translated(error, "testing")) is ours


def test_only_statements_of_ours_can_lack_our_tables() -> None:
    assert isinstance(outdated(said("42883"), "adding"), StoreOutdated)
    assert isinstance(outdated(said("40001"), "adding"), StoreUnavailable)


def test_a_cut_connection_is_lost_and_an_error_of_a_statement_is_not() -> None:
    assert is_lost(said("57P01"))
    assert is_lost(asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"))
    assert not is_lost(said("23505"))


def test_an_error_without_a_code_has_none() -> None:
    assert sqlstate_of(ValueError("no")) == ""
    assert sqlstate_of(psycopg.OperationalError("no")) == ""
    assert sqlstate_of(Exception({"C": "40001"})) == "40001"


def test_an_error_that_says_nothing_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="reading: TimeoutError"), mapped("reading"):
        raise TimeoutError


def test_a_driver_that_is_confused_is_told_as_a_server_that_is_away() -> None:
    error = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
    told = translated(error, "reading")
    assert isinstance(told, StoreUnavailable)
    assert str(told).startswith("reading: the server is away")
    assert "state 12" not in str(told)
    error.__context__ = ConnectionResetError(104, "reset by peer")
    assert str(translated(error, "reading")) == f"{told}: [Errno 104] reset by peer"


@pytest.mark.parametrize("code", ["22P02", "23502"])
def test_what_the_server_quotes_of_a_value_is_not_told(code: str) -> None:
    error = asyncpg.PostgresError.new({"C": code, "M": "no", "D": "Zeile enthält (1, Ada).", "W": "JSON: Ada"})
    assert "Ada" in str(error)
    assert str(translated(error, "adding")) == "adding: no"


def wrapped_by_django(error: Exception) -> Exception:
    wrapper = OperationalError("no")
    wrapper.__cause__ = error
    return wrapper


def wrapped_by_sqlalchemy(error: Exception) -> Exception:
    return DBAPIError("SELECT 1", None, error)


@pytest.mark.parametrize("wrapped", [lambda error: error, wrapped_by_django, wrapped_by_sqlalchemy])
def test_the_databases_trouble_is_told_from_that_of_the_code_inside(wrapped: Callable[[Exception], Exception]) -> None:
    gone = psycopg.OperationalError("server closed the connection unexpectedly")
    assert original_of(wrapped(gone)) is gone
    assert type(database_trouble(wrapped(gone), lost=True)) is StoreUnavailable
    assert database_trouble(wrapped(gone), lost=False) is None
    assert type(database_trouble(wrapped(psycopg_errors.DeadlockDetected()), lost=False)) is StoreCollision
    assert database_trouble(wrapped(psycopg_errors.UniqueViolation()), lost=True) is None


def test_an_error_of_ours_is_left_as_it_is() -> None:
    assert database_trouble(StoreUnavailable("told already"), lost=True) is None

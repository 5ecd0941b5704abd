from __future__ import annotations

import asyncpg
import psycopg
import pytest
from psycopg import errors as psycopg_errors

from posthouse.errors import (
    ConfigurationError,
    PosthouseError,
    StoreError,
    StoreFull,
    StoreOutdated,
    StoreUnavailable,
)
from posthouse.stores.postgres.errors import is_lost, mapped, outdated, sqlstate_of, translated


def said(code: str) -> asyncpg.PostgresError:
    """What asyncpg makes of an error of the server."""
    return asyncpg.PostgresError.new({"C": code, "M": "no"})


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (said("40001"), StoreUnavailable),
        (said("40P01"), StoreUnavailable),
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
        (psycopg_errors.SerializationFailure(), StoreUnavailable),
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

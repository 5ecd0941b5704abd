"""What is heard of a transaction's statements: which of them end it, and which only look so."""

from __future__ import annotations

import pytest

from posthouse.store.savepoints import Savepoints


def heard(sql: str) -> str:
    savepoints = Savepoints()
    savepoints.hear(sql)
    return savepoints.lost


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "commit work;",
        "END",
        "END TRANSACTION AND CHAIN",
        "ROLLBACK",
        "ABORT",
        "PREPARE TRANSACTION 'x'",
        "INSERT INTO a VALUES (1); COMMIT",
        "-- last\nCOMMIT",
    ],
)
def test_a_statement_that_ends_the_transaction_is_heard(sql: str) -> None:
    assert "ended before its block" in heard(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'COMMIT'",
        "PREPARE later AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET c = 1; END",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END",
        "DO $$ BEGIN PERFORM 1; END $$",
        "CREATE TABLE a (b int) ON COMMIT DROP",
        "SELECT CASE WHEN 1 THEN 2 END",
        "RELEASE a",
        "SAVEPOINT a",
    ],
)
def test_a_statement_that_only_looks_like_it_is_passed_over(sql: str) -> None:
    assert heard(sql) == ""

"""What a handler may not do with a transaction that is the store's to end."""

from __future__ import annotations

import functools
import re
from itertools import islice
from typing import Any, NoReturn

from posthouse.errors import StoreError
from posthouse.store.wording import statements_in, text_of

ENDED_INSIDE = "the transaction was ended inside its block: this is not a commit"
PASSED_OVER = (
    "a statement failed inside the block and its error was passed over, so PostgreSQL has rolled everything back: let the "
    "error leave the block, or use a savepoint"
)

MAY = re.compile(r"\b(BEGIN|START|COMMIT|END|ABORT|PREPARE|ROLLBACK)\b", re.IGNORECASE)
ENDS_TRANSACTION = re.compile(
    r"(BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+((TRANSACTION|WORK)\s+)?TO\b))\b",
    re.IGNORECASE,
)
ROUTINE = re.compile(r"CREATE\b.*\bBEGIN\s+ATOMIC\b", re.IGNORECASE | re.DOTALL)
"""The body of a routine, which has statements and an END of its own."""


def refuse_ending(sql: object) -> None:
    """Statements that begin or end a transaction belong to whoever began this one; savepoints are free."""
    _refuse_ending(_spelled(sql), None)


def refuse_ending_first(sql: str) -> None:
    """The same for SQLite's driver, which runs no second statement."""
    _refuse_ending(sql, 1)


def _spelled(sql: Any) -> str:
    """The text of what was composed of parts; those of psycopg2 cannot be spelled without a connection."""
    try:
        return str(sql.as_string()) if hasattr(sql, "as_string") else text_of(sql)
    except TypeError:
        return text_of(sql)


@functools.lru_cache(maxsize=1024)
def _refuse_ending(text: str, many: int | None) -> None:
    if not MAY.search(text):
        return
    in_routine = False
    for statement in islice(statements_in(text, nested=many is None), many):
        found = ENDS_TRANSACTION.match(statement)
        if found is not None and in_routine and found[0].upper() == "END":
            in_routine = False
        elif found is not None:
            refuse(found[0].upper())
        in_routine = in_routine or bool(ROUTINE.match(statement))


def refuse(what: str) -> NoReturn:
    """The words for all of these."""
    raise StoreError(
        f"{what} is not yours to call: the transaction commits when its block ends and rolls back when an exception leaves it"
    )

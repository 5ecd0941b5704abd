"""What a handler may not do with a transaction that is the store's to end."""

from __future__ import annotations

from typing import NoReturn

from posthouse.errors import StoreError
from posthouse.stores.postgres.statements import ENDS_TRANSACTION


def refuse_ending(sql: object) -> None:
    """Statements that begin or end a transaction belong to whoever began this one; savepoints are free."""
    text = sql.decode(errors="replace") if isinstance(sql, bytes) else sql
    if isinstance(text, str) and ENDS_TRANSACTION.match(text):
        refuse(text.split()[0].upper())


def refuse(what: str) -> NoReturn:
    """The words for all of these."""
    raise StoreError(
        f"{what} is not yours to call: the transaction commits when its block ends and rolls back when an exception leaves it"
    )

"""Recording: a statement of the user's and the fact about it as one statement, which is a transaction of its own."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from posthouse.errors import CommitUnknown
from posthouse.store import OutboxRow
from posthouse.stores.postgres.append import append_one, is_plain, one_row
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import FOREIGN, is_lost, sqlstate_of, translated
from posthouse.stores.postgres.harmless import leaves_nothing

# What theirs becomes a part of. The fact is written once, however many rows were changed, and not at all when none was. All
# rows are changed before the lock of its key is taken, as in a block: with some of them still to come, the two could wait for
# each other.
TOGETHER = """
WITH theirs AS ({theirs}
)
{ours} FROM (SELECT count(*) AS many FROM theirs) changed WHERE changed.many > 0
"""

CHANGES = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b", re.I)
RETURNS = re.compile(r"\bRETURNING\b", re.I)
PLACE = re.compile(r"\$(\d+)")

NOT_TOGETHER = ("0A000", "40001")
"""It cannot be a part of another statement, or this database has transactions stricter than READ COMMITTED."""


async def recorded(database: Database, sql: str, parameters: Sequence[object], row: OutboxRow) -> bool | None:
    """Whether theirs changed a row, so that the fact is said; None when it has to be done step by step: nothing was done."""
    theirs = _theirs(sql, len(parameters))
    if theirs is None or not is_plain([row]):
        return None
    # Names are put into ours before theirs comes in: what they write is theirs, also where it reads like one of our names.
    ours = database.text(TOGETHER.replace("{ours}", append_one(len(parameters))))
    statement = ours.replace("{theirs}", theirs)
    place = database.place or await database.check()
    await database.take_seat()
    try:
        async with database.connected() as connection:
            try:
                said = await connection.run(statement, (*parameters, *one_row(row, place)))
            except (*FOREIGN, ValueError, TypeError) as error:  # the last two: a parameter that does not fit its type
                if sqlstate_of(error) in NOT_TOGETHER:
                    return None
                if is_lost(error):
                    database.abandon(connection)
                    raise CommitUnknown(f"recording: {error}: it may or may not have happened") from error
                raise translated(error, f"recording {' '.join(sql.split())[:60]!r}") from error
    finally:
        database.leave_seat()
    if said:
        database.notifier.notify()
    return bool(said)


@functools.lru_cache(maxsize=1024)
def _theirs(sql: str, given: int) -> str | None:
    """Theirs, as a part of ours; None for what cannot be a part of another statement, or has not as many parameters as it names: ours
    would take their places."""
    named = max(map(int, PLACE.findall(sql)), default=0)
    if not CHANGES.match(sql) or not leaves_nothing(sql) or named != given:
        return None
    theirs = sql.rstrip().rstrip(";")
    if not RETURNS.search(theirs):
        theirs += "\nRETURNING 1"
    return theirs

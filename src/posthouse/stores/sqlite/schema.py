"""Schema: the tables of the store inside the user's own database file, and the way to them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from importlib import resources

from posthouse.errors import ConfigurationError, StoreError, StoreOutdated
from posthouse.stores.sqlite.steps import Steps

DEFAULT_SHARDS = 16
MOST_SHARDS = 62
"""Sets of shards travel as the bits of one SQLite integer."""

# The list of migrations that were applied.
KEEP_LIST = (
    "CREATE TABLE IF NOT EXISTS posthouse_migration (name TEXT PRIMARY KEY, applied_at REAL NOT NULL) WITHOUT ROWID"
)

# Whether a database has our tables at all, and which file it is.
LOOK = """
SELECT file, (SELECT count(*) FROM main.sqlite_master WHERE name IN ('posthouse_migration', 'posthouse_meta'))
FROM pragma_database_list WHERE name = 'main'
"""

# What was applied, in order.
LIST = "SELECT name FROM posthouse_migration ORDER BY name"

# Note a migration.
NOTE = "INSERT INTO posthouse_migration (name, applied_at) VALUES (?, ?)"

# How many shards the outbox has.
SHARDS = "SELECT value FROM posthouse_meta WHERE name = 'shards'"

# Decide the number of shards, once.
SET_SHARDS = "INSERT INTO posthouse_meta (name, value) VALUES ('shards', ?) ON CONFLICT DO NOTHING"

# One row per shard.
ADD_SHARD = "INSERT INTO posthouse_shard (number) VALUES (?) ON CONFLICT DO NOTHING"


def migrations() -> Sequence[str]:
    """The names of all migrations that this release knows, in order."""
    folder = resources.files("posthouse.stores.sqlite") / "migrations"
    return sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql"))


def script(name: str) -> str:
    """One migration as it is written."""
    return (resources.files("posthouse.stores.sqlite") / "migrations" / f"{name}.sql").read_text(encoding="utf-8")


def statements(name: str) -> Iterator[str]:
    """The statements of one migration."""
    statement = ""
    for line in script(name).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def applied() -> Steps[Sequence[str]]:
    """The migrations that a database has."""
    found = yield LOOK, ()
    if found.one()[1] == 0:
        return []
    return [str(row[0]) for row in (yield LIST, ())]


def missing(present: Sequence[str]) -> Sequence[str]:
    """The migrations still to apply; a database from a newer release is refused."""
    known = migrations()
    newer = sorted(set(present) - set(known))
    if newer:
        raise StoreError(
            f"the database was upgraded by a newer Posthouse ({', '.join(newer)}): upgrade the package on this machine"
        )
    return [name for name in known if name not in present]


def upgrading(name: str, now: float, shards: int | None) -> Steps[bool]:
    """Apply one migration inside an open transaction; False when another process was faster."""
    yield KEEP_LIST, ()
    if name in [row[0] for row in (yield LIST, ())]:
        return False
    for statement in statements(name):
        yield statement, ()
    yield NOTE, (name, now)
    yield SET_SHARDS, (shards or DEFAULT_SHARDS,)
    for number in range(int(str((yield SHARDS, ()).scalar()))):
        yield ADD_SHARD, (number,)
    return True


def real_path(file: str) -> str:
    """A file's one true name; empty for a database in memory."""
    return os.path.normcase(os.path.realpath(file)) if file else ""


def checking(wanted_shards: int | None, file: str | None = None) -> Steps[int]:
    """The number of shards, once it is sure that this database has our tables as this release needs them, and, where a
    `file` is given, that it is that file."""
    (found, tables) = (yield LOOK, ()).one()
    if file is not None and real_path(str(found or "")) != file:
        raise ConfigurationError(
            f"the connection is to {found or 'a database in memory'}, the store is {file or 'in memory'}: "
            "events are added in the store's own database, or they could not commit with your rows"
        )
    lacking = missing([str(row[0]) for row in (yield LIST, ())]) if tables else migrations()
    if lacking:
        theirs = not tables and file is not None
        what = (
            "has no tables of Posthouse, and a transaction of yours makes none"
            if theirs
            else f"lacks {', '.join(lacking)}"
        )
        raise StoreOutdated(
            f"the database {what}: run `posthouse db upgrade TARGET`, your module:service or the URL of the store"
        )
    shards = (yield SHARDS, ()).scalar()
    if wanted_shards not in (None, shards):
        raise ConfigurationError(
            f"the outbox was made with {shards} shards and {wanted_shards} are configured: the number is fixed at creation, "
            f"so set shards={shards} or leave it out"
        )
    return int(str(shards))

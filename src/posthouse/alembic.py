"""For users of Alembic: our tables in a revision of theirs, and an autogenerate that leaves them alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from alembic import op
from sqlalchemy import DDL, Connection, text

from posthouse.stores.postgres.scripts import drop_script, upgrade_script

__all__ = ["downgrade", "upgrade", "without_posthouse"]

IncludeName = Callable[[str | None, str, Mapping[str, str | None]], bool]

# The schemas that have all tables of a kind, whatever they are called, and whether we may read them.
HAVING = """
SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE') AND bool_and(has_table_privilege(c.oid, 'SELECT'))
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
WHERE c.relkind IN ('r', 'p') AND c.relname = ANY (CAST(:tables AS text[]))
GROUP BY n.oid, n.nspname HAVING count(*) = cardinality(CAST(:tables AS text[]))
"""
STORE = ["migration", "incarnation", "outbox", "inbox", "generation"]
BASELINE = "posthouse_baseline"
"""What `posthouse.testing` keeps in the databases of tests."""
LOG = ["log", "run", "topics", "heads", "frames", "cursors"]

# The tables of read models, which are among the user's own.
MODELS = 'SELECT unnest(tables) FROM "{schema}".generation'

# The same in a file of SQLite.
TABLES_ON_SQLITE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'posthouse_*'"
MODELS_ON_SQLITE = "SELECT tables FROM posthouse_generation"


class Ours(NamedTuple):
    """What of a database is not the user's to change."""

    schemas: frozenset[str]
    tables: frozenset[str]


def upgrade(*, schema: str = "posthouse", shards: int | None = None, post: bool = False) -> None:
    """In a revision: bring the tables of a store in this schema to what this release of Posthouse needs. What is there already stays
    as it is, so that each upgrade of the package may have a revision of its own. `post` as in `posthouse db upgrade --post`."""
    _run(upgrade_script(schema, shards=shards, post=post))


def downgrade(*, schema: str = "posthouse") -> None:
    """In the revision that made them: drop the tables. It fails while an event in them was not sent or not applied yet, a saga is not
    over, streams have events, or something else was made in the schema."""
    _run(drop_script(schema))


def without_posthouse(connection: Connection) -> IncludeName:
    """For `context.configure(include_name=…)`: everything but the schemas of our stores and logs, whatever they are called, and the
    tables of read models. The database is asked when autogenerate asks first: a question before would begin a transaction, and
    Alembic would leave its commit to you."""

    @cache
    def ours() -> Ours:
        return (_on_sqlite if connection.dialect.name == "sqlite" else _on_postgres)(connection)

    def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        if kind == "schema":
            return name not in ours().schemas
        return kind != "table" or name not in ours().tables

    return include_name


def _on_postgres(connection: Connection) -> Ours:
    stores = connection.execute(text(HAVING), {"tables": STORE}).all()
    logs = connection.execute(text(HAVING), {"tables": LOG}).all()
    readable = [schema.replace('"', '""') for schema, may_read in stores if may_read]
    models = [name for schema in readable for name in connection.scalars(text(MODELS.format(schema=schema)))]
    return Ours(frozenset([BASELINE, *(schema for schema, _ in [*stores, *logs])]), frozenset(models))


def _on_sqlite(connection: Connection) -> Ours:
    tables = connection.scalars(text(TABLES_ON_SQLITE)).all()
    models = connection.scalars(text(MODELS_ON_SQLITE)) if "posthouse_generation" in tables else ()
    return Ours(frozenset(), frozenset([*tables, *(name for names in models for name in json.loads(names))]))


def _run(script: str) -> None:
    op.execute(DDL(script.replace("%", "%%")))  # type: ignore[no-untyped-call] # text() would look for parameters in it

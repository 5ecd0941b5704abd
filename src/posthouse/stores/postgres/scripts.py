"""Scripts: the tables of a store brought up to date, or dropped, by one statement. Any driver takes it, also one that takes a single
statement at a time, and any tool that runs statements, also one that only prints them: Alembic, Django."""

from __future__ import annotations

from posthouse.stores.postgres.counting import FIGURES
from posthouse.stores.postgres.database import in_schema
from posthouse.stores.postgres.schema import FIRST
from posthouse.stores.postgres.store import PostgresStore
from posthouse.stores.postgres.upgrade import TAKE_TURN

# What is missing, in the order of the migrations; a database that has nothing gets everything.
UPGRADE = """
DO $posthouse$
DECLARE
    fresh boolean;
BEGIN
    PERFORM {turn};
    fresh := to_regclass('{schema}.migration') IS NULL;
{steps}END $posthouse$
"""

# One of them. What it says is looked at when its turn comes, so that it may use what those before have made.
STEP = """
    IF {wanted} THEN
        EXECUTE $migration$
{sql}
$migration$;
    END IF;
"""

# Everything, unless there is something that somebody still waits for.
DROP = f"""
DO $posthouse$
DECLARE
    waiting bigint;
BEGIN
    IF to_regclass('{{schema}}.migration') IS NULL THEN
        RETURN;
    END IF;
    SELECT coalesce(sum(f.n), 0) INTO waiting FROM ({FIGURES}) f
    WHERE f.what IN ('backlog', 'stuck', 'timers') OR (starts_with(f.what, 'held ') AND f.what <> 'held skipped');
    IF waiting > 0 THEN
        RAISE EXCEPTION 'the schema {{schema}} has % events that were not sent or not applied yet', waiting
        USING HINT = 'Let `posthouse run` finish them, or decide on them (`posthouse held`, `outbox`, `timers`), '
            'before its tables are dropped.';
    END IF;
    DROP SCHEMA {{schema}} CASCADE;
END $posthouse$
"""


def upgrade_script(schema: str = "posthouse", *, shards: int | None = None, post: bool = False) -> str:
    """Apply the migrations that a database lacks, those of the second kind only with `post` or where there is nothing yet. Safe to
    run again."""
    store = PostgresStore("postgresql://", schema=schema, shards=shards)
    steps = "".join(
        STEP.format(wanted=_wanted(schema, step.name, late=step.post and not post), sql=step.sql)
        for step in store.migrations()
    )
    return UPGRADE.format(turn=TAKE_TURN.removeprefix("SELECT "), schema=schema, steps=steps)


def drop_script(schema: str = "posthouse") -> str:
    """Drop the schema with all its tables. It fails while an event in it was not sent, or is held, or a timer waits."""
    PostgresStore("postgresql://", schema=schema)  # which refuses what cannot be the name of one
    return in_schema(DROP, schema)


def _wanted(schema: str, name: str, *, late: bool) -> str:
    if name == FIRST:
        return "fresh"
    lacking = f"NOT EXISTS (SELECT FROM {schema}.migration WHERE name = '{name}')"
    return f"fresh AND {lacking}" if late else lacking

"""Scripts: the tables of a store brought up to date, or dropped, by one statement. Any driver takes it, also one that takes a single
statement at a time, and any tool that runs statements, also one that only prints them: Alembic, Django."""

from __future__ import annotations

import re

from posthouse.stores.postgres.counting import UNSENT
from posthouse.stores.postgres.database import in_schema
from posthouse.stores.postgres.schema import FIRST, migrations, script
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

LOCKED = (
    "posthouse.outbox, posthouse.stuck, posthouse.held, posthouse.timer, posthouse.saga, posthouse.stream_event, "
    "posthouse.stream_archive"
)
"""What is counted, and so must stand still from the count to the drop."""
LOCK_SECONDS = 5
"""That a drop waits for whoever has written there and not committed. Whoever comes after it waits as long."""

# Everything, unless there is something that somebody still waits for, or that is nowhere else, or that is not ours. What a
# transaction has said that is open now is waited for and counted: the next statement sees it, unless the snapshot is older.
DROP = f"""
DO $posthouse$
DECLARE
    found bigint;
    strangers text;
    lock_timeout text := current_setting('lock_timeout');
BEGIN
    IF to_regclass('{{schema}}.migration') IS NULL THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE EXCEPTION 'the tables of {{schema}} are dropped under READ COMMITTED alone: an older snapshot does not see what was '
            'committed meanwhile';
    END IF;
    SELECT string_agg(o.name, ', ' ORDER BY o.name) INTO strangers FROM (
        SELECT c.relname::text AS name FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('{{schema}}') AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c')
            AND NOT EXISTS (SELECT FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION SELECT p.proname FROM pg_proc p WHERE p.pronamespace = to_regnamespace('{{schema}}')) o
    WHERE o.name <> ALL (string_to_array('{{ours}}', ','));
    IF strangers IS NOT NULL THEN
        RAISE EXCEPTION 'the schema {{schema}} has something that Posthouse did not make: %', strangers
        USING HINT = 'Move it to another schema or drop it yourself: a downgrade drops the whole schema.';
    END IF;
    PERFORM set_config('lock_timeout', '{LOCK_SECONDS}s', true);
    BEGIN
        LOCK TABLE {LOCKED} IN ACCESS EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN
        RAISE EXCEPTION 'somebody has used the tables of {{schema}} for {LOCK_SECONDS} s in a transaction that is still open'
        USING ERRCODE = 'lock_not_available', HINT = 'End every producer and every `posthouse run` before the tables are dropped.';
    END;
    SELECT coalesce(sum(f.n), 0) INTO found FROM ({UNSENT.replace("$2", "NULL")}) f;
    found := found + (SELECT count(*) FROM posthouse.stuck) + (SELECT count(*) FROM posthouse.timer)
        + (SELECT count(*) FROM posthouse.held h WHERE h.state <> 'skipped');
    IF found > 0 THEN
        RAISE EXCEPTION 'the schema {{schema}} has % events that were not sent or not applied yet', found
        USING HINT = 'Let `posthouse run` finish them, or decide on them (`posthouse held`, `outbox`, `timers`), '
            'before its tables are dropped.';
    END IF;
    SELECT count(*) INTO found FROM posthouse.saga s WHERE s.ended_at IS NULL;
    IF found > 0 THEN
        RAISE EXCEPTION 'the schema {{schema}} has % sagas that are not over', found
        USING HINT = 'Let `posthouse run` finish them. To give them up: DELETE FROM {{schema}}.saga WHERE ended_at IS NULL';
    END IF;
    SELECT (SELECT count(*) FROM posthouse.stream_event) + (SELECT count(*) FROM posthouse.stream_archive) INTO found;
    IF found > 0 THEN
        RAISE EXCEPTION 'the schema {{schema}} has % events of streams, which are nowhere else', found
        USING HINT = 'To give them up: TRUNCATE {{schema}}.stream_event, {{schema}}.stream_archive';
    END IF;
    DROP SCHEMA {{schema}} CASCADE;
    PERFORM set_config('lock_timeout', lock_timeout, true);
END $posthouse$
"""

MADE = re.compile(r"CREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:TABLE|VIEW|SEQUENCE|TYPE|FUNCTION) posthouse\.(\w+)")


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
    """Drop the schema with all its tables. It fails while an event in it was not sent, or is held, or a timer or a saga waits, or
    streams have events, or something in it is not ours."""
    PostgresStore("postgresql://", schema=schema)  # which refuses what cannot be the name of one
    ours = ",".join(sorted({name for step in migrations() for name in MADE.findall(script(step))}))
    return in_schema(DROP.replace("{ours}", ours), schema)


def _wanted(schema: str, name: str, *, late: bool) -> str:
    if name == FIRST:
        return "fresh"
    lacking = f"NOT EXISTS (SELECT FROM {schema}.migration WHERE name = '{name}')"
    return f"fresh AND {lacking}" if late else lacking

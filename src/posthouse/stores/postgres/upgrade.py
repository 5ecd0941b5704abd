"""Upgrade: from the tables that are there to those that this release needs, while others work on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from posthouse.clock import backoff
from posthouse.errors import StoreUnavailable
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.schema import applied, missing, script
from posthouse.stores.postgres.transaction import PostgresTransaction

log = logging.getLogger("posthouse.store")

LOCK_MS = 300
"""Milliseconds that a step waits for a lock. Whoever comes after it waits as long, so it is short."""
FIRST_PAUSE, LAST_PAUSE = 0.2, 2.0
"""Seconds between two tries."""
NOT_AVAILABLE = "55P03"

# One upgrade at a time.
TAKE_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('posthouse.upgrade', 0))"

# Give way soon when somebody has the lock that a step needs.
GIVE_WAY = f"SELECT set_config('lock_timeout', '{LOCK_MS}ms', true)"

# Who has used our tables for longest in a transaction that is still open.
HOLDER = """
SELECT a.pid, extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, coalesce(a.query, '')
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.pid IN (
    SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.granted AND c.relnamespace = to_regnamespace('{schema}')
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
ORDER BY a.xact_start LIMIT 1
"""


async def upgraded(database: Database, *, post: bool) -> Sequence[str]:
    """The steps that were applied: all at once where there were no tables, else each in a transaction of its own."""
    done: list[str] = []
    while names := await _patient_step(database, post):
        done += names
    database.forget()
    await database.check()
    return done


async def _patient_step(database: Database, post: bool) -> Sequence[str]:
    """The next step, tried until its locks are to be had; StoreUnavailable, which names who has them, in the end."""
    loop = asyncio.get_running_loop()
    deadline, attempts = loop.time() + database.settings.patience, 0
    while True:
        attempts += 1
        try:
            return await _step(database, post)
        except StoreUnavailable as error:
            if sqlstate_of(error.__cause__ or error) != NOT_AVAILABLE:
                raise
            holder = await _holder(database)
            if loop.time() > deadline:
                raise StoreUnavailable(
                    f"the upgrade needs a lock that was not to be had for {database.settings.patience:g} s{holder}"
                ) from error
            log.info("the upgrade gives way and tries again%s", holder)
        await asyncio.sleep(backoff(attempts, FIRST_PAUSE, LAST_PAUSE))


async def _step(database: Database, post: bool) -> Sequence[str]:
    async with PostgresTransaction(database, check=False) as tx:
        await tx.run(TAKE_TURN)
        present = await tx.carry_out(applied())
        lacking = missing(present, post=post)
        names = lacking[:1] if present else lacking
        if names:
            await tx.run(GIVE_WAY)
        for name in names:
            await tx.run_script(script(name, database.settings.shards))
    return names


async def _holder(database: Database) -> str:
    found = await database.run(HOLDER, check=False)
    if not found:
        return ""
    pid, age, query = found[0]
    said = " ".join(str(query).split())[:120]
    return f": session {pid} has been in a transaction for {age} s ({said}); SELECT pg_terminate_backend({pid}) ends it"

"""Checks: whether the log's server keeps what it was given, and what stands in its way today."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.brokers.postgres.client import Database
from posthouse.checks import Check, judged
from posthouse.local.postgres import server, sessions
from posthouse.local.postgres.pooler import pooler_check, probed

CONNECTING = 10.0
AHEAD = """
    SELECT count(*), coalesce(string_agg(DISTINCT c.grp, ', '), '') FROM {s}.cursors c
    JOIN {s}.heads h ON h.topic = c.topic AND h.partition = c.partition WHERE c.acked > h.stored"""

# Who we are, and whether we may make the log: in a schema that is there, or with one.
MAY_MAKE = """
    SELECT current_user::text, coalesce(
        (SELECT has_schema_privilege(n.oid, 'CREATE') FROM pg_namespace n WHERE n.nspname = $1),
        has_database_privilege(current_database(), 'CREATE'))"""


async def log_checks(database: Database, *, today: bool) -> list[Check]:
    """Settings with which a crash may lose frames are warnings: the sheet says that it is not durable."""
    there = await database.there()
    (row,) = await database.ask("looking at the server", server.SERVER)
    (role,) = await database.ask("looking at the server", server.ROLE)
    checks = server.server_checks(tuple(row), "warn")
    checks += [server.role_check(tuple(role)), await _pooler(database)]
    return checks + (await _today(database, there=there) if today else [])


async def _cursors(database: Database) -> Check:
    """A group that has read more than there is: a part of the log was put back without the rest."""
    ((ahead, groups),) = await database.fetch("looking at cursors", AHEAD)
    return judged(
        "cursors",
        f"{ahead} partitions have a cursor behind the end of the log: {groups}" if ahead else "none is behind the end",
        wrong=ahead > 0,
        fix="the log was restored without its cursors: the next member to join starts over with all that is kept",
    )


async def _missing(database: Database) -> Check:
    """The log is not there: a worker makes it, if it may."""
    ((role, may),) = await database.ask("looking at rights", MAY_MAKE, database.schema)
    return judged(
        "log",
        f"{database.place} is not there"
        + (": a worker makes it when it runs" if may else f", and {role} may not make it"),
        wrong=not may,
        as_="fail",
        fix=database.rights,
    )


async def _pooler(database: Database) -> Check:
    try:
        found = await probed(database.url, connecting=CONNECTING, name=database.share.name)
    except Exception as error:  # the log was reached a moment ago: what is missing is room for two connections more
        return Check(
            name="pooler",
            found=f"not found out: {error}",
            judgement="warn",
            fix="two connections more were needed to look",
        )
    return pooler_check(found, "transaction" if database.pooled else "none")


async def _today(database: Database, *, there: bool) -> list[Check]:
    async def rows(sql: str) -> Sequence[Sequence[object]]:
        return [tuple(row) for row in await database.ask("looking at the server", sql)]

    ((hidden,),) = await rows(sessions.HIDDEN)
    checks = [sessions.oldest_check(await rows(sessions.OLDEST), int(str(hidden)))]
    checks.append(await (_cursors if there else _missing)(database))
    checks += sessions.prepared_checks(await rows(sessions.PREPARED))
    (used,) = await rows(sessions.CONNECTIONS)
    return [*checks, sessions.connections_check(used, database.most_connections, " for its broker")]

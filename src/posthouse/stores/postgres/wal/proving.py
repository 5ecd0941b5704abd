"""Proving: whether a server lets us follow its log, and what to set when it does not."""

from __future__ import annotations

from posthouse.errors import ConfigurationError, StoreError
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.wal.stream import connected

# What the server must allow, and whether a commit waits for standbys that the log does not wait for.
SETTINGS = """
SELECT current_setting('wal_level'), current_setting('max_wal_senders'), current_setting('max_replication_slots'),
    current_setting('synchronous_standby_names') <> ''
        AND coalesce(current_setting('synchronized_standby_slots', true), '') = ''
"""

# What tells one state of the publication from another: it changes with every change of it. NULL when it does not publish
# every inserted row of the outbox, whole.
PUBLISHED = """
SELECT concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin)
FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
WHERE p.pubname = '{schema}_outbox' AND r.prrelid = 'posthouse.outbox'::regclass AND p.pubinsert
    AND to_jsonb(r) ->> 'prqual' IS NULL AND to_jsonb(r) ->> 'prattrs' IS NULL
"""

# Whether there is one of that name at all.
NAMED = "SELECT count(*) FROM pg_publication WHERE pubname = '{schema}_outbox'"

# Publish what is added; nothing else of the outbox is news.
PUBLISH = """
CREATE PUBLICATION {schema}_outbox FOR TABLE posthouse.outbox
WITH (publish = 'insert', publish_via_partition_root = true)
"""

# The same, for one that was made for tables that are gone, or was changed.
REPUBLISH = "DROP PUBLICATION {schema}_outbox"

PRIVILEGE, TAKEN = "42501", ("42710", "23505")


async def proved(database: Database) -> None:
    """Refuse a server whose log cannot be followed: every reason at once, each with what to do."""
    problems: list[str] = []
    if database.settings.pooled and database.settings.listen_url is None:
        problems.append("a pooler does not carry replication: name the server itself in listen_url")
    level, senders, slots, unsafe = (await database.run(SETTINGS)).one()
    if level != "logical":
        problems.append(
            f"the server has wal_level={level}: set wal_level=logical and restart it (on managed servers: switch logical "
            "replication on)"
        )
    problems += [
        f"the server has {name}=0: set it to the number of relays, at least"
        for name, value in (("max_wal_senders", senders), ("max_replication_slots", slots))
        if value == "0"
    ]
    if unsafe:
        problems.append(
            "commits wait for synchronous standbys and the log does not: an event could be published whose transaction a "
            "failover takes back; name the standbys' slots in synchronized_standby_slots (PostgreSQL 17), or let the relay "
            "poll"
        )
    if not problems:
        problems += await _refused(database)
    if problems:
        raise ConfigurationError(*(f"--relay wal: {problem}" for problem in problems))


async def _refused(database: Database) -> list[str]:
    try:
        await published(database)
        async with connected(direct_url(database), "", database.settings.patience, database.wal_name):
            return []
    except ConfigurationError as error:
        return list(error.problems)
    except StoreError as error:  # an ordinary connection did work a moment ago
        return [f"{error}: the role must have REPLICATION, and pg_hba.conf must let it connect with it"]


def direct_url(database: Database) -> str:
    """The server itself, also where a pooler stands before it."""
    return database.settings.listen_url or database.url


async def published(database: Database) -> str:
    """Make sure that the outbox is published; what tells this state of the publication from any other."""
    state = await _state(database)
    if state is not None:
        return state
    try:
        if (await database.run(NAMED)).scalar():
            await database.run(REPUBLISH)
        await database.run(PUBLISH)
    except StoreError as error:
        code = sqlstate_of(error.__cause__ or error)
        if code == PRIVILEGE:
            statement = " ".join(database.text(PUBLISH).split())
            raise ConfigurationError(
                f"this role may not publish the outbox: let its owner run `{statement}`"
            ) from error
        if code not in TAKEN:
            raise
    state = await _state(database)
    if state is None:
        raise StoreError("the outbox is not published: somebody changes the publication at this moment")
    return state


async def _state(database: Database) -> str | None:
    found = await database.run(PUBLISHED)
    return str(found.scalar()) if found else None

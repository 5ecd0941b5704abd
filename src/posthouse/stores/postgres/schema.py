"""Schema: the tables of the store in a schema of their own beside the user's, and the way to them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import msgspec

from posthouse.errors import ConfigurationError, StoreError, StoreOutdated
from posthouse.stores.postgres.steps import Steps

HERE = resources.files("posthouse.stores.postgres")
DEFAULT_SHARDS = 16
MOST_SHARDS = 64
"""A poll looks at each shard."""
POST = ".post"
"""Ends the name of a migration that the release before this one could not live with."""
FIRST = "0001_schema"
"""The migration that makes everything: schema.sql and the functions. Later ones are files in migrations/."""

# Whether the database has our tables at all, and which one it is.
LOOK = "SELECT to_regclass('posthouse.migration') IS NOT NULL, current_database()"

# What was applied, in order.
LIST = "SELECT name FROM posthouse.migration ORDER BY name"

# Note a migration.
NOTE = "INSERT INTO posthouse.migration (name) VALUES ('{name}');"

# Decide the facts about the whole store, once.
SET_META = """
INSERT INTO posthouse.meta (shards, system, database, timeline)
SELECT {shards}, p.system, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), p.timeline
FROM posthouse.place() p ON CONFLICT DO NOTHING;
"""

# One row per shard.
ADD_SHARDS = """
INSERT INTO posthouse.shard (number) SELECT generate_series(0, m.shards - 1) FROM posthouse.meta m ON CONFLICT DO NOTHING;
"""

# Put the tables with tenants under row-level security.
GUARD = "SELECT posthouse.guard();"

# The facts that an append must know.
PLACE = "SELECT m.identity, m.shards FROM posthouse.meta m"

# What the order of events rests on: ids are drawn one by one, both indexes are good, a commit reaches the disk.
SOUND = """
SELECT (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'posthouse.outbox_id_seq'::regclass),
    (SELECT count(*) FROM pg_index WHERE indrelid = 'posthouse.outbox'::regclass AND indisvalid),
    current_setting('fsync'), current_setting('full_page_writes')
"""


class Place(msgspec.Struct, frozen=True):
    """The database that an append belongs to, and how many shards its outbox has."""

    identity: str
    shards: int


def migrations() -> Sequence[str]:
    """The names of all migrations that this release knows, in order."""
    return [FIRST, *_names("migrations")]


def is_post(name: str) -> bool:
    """Whether it must wait until no process of the release before is left."""
    return name.endswith(POST)


def script(name: str, shards: int | None = None) -> str:
    """The statements of one migration, which also note it. The first decides the number of shards."""
    if name != FIRST:
        return f"{_text(f'migrations/{name}')}\n{NOTE.format(name=name)}\n"
    functions = (_text(f"functions/{subject}") for subject in _names("functions"))
    facts = SET_META.format(shards=shards or DEFAULT_SHARDS) + ADD_SHARDS
    return "\n".join([_text("schema"), *functions, GUARD, facts, NOTE.format(name=name), ""])


def applied() -> Steps[Sequence[str]]:
    """The migrations that a database has."""
    if not (yield LOOK, ()).one()[0]:
        return []
    return [str(row[0]) for row in (yield LIST, ())]


def missing(present: Sequence[str], *, post: bool = False) -> Sequence[str]:
    """The migrations still to apply, those of the second kind only with `post`, or where there is nothing at all yet.

    What a newer release did before its own processes started is no matter to this one; a database that it finished is
    refused.
    """
    known = migrations()
    finished = sorted(name for name in set(present) - set(known) if is_post(name))
    if finished:
        raise StoreError(
            f"the database was upgraded by a newer Posthouse ({', '.join(finished)}): upgrade the package on this machine"
        )
    return [name for name in known if name not in present and (post or not present or not is_post(name))]


def checking(wanted_shards: int | None, database: str | None = None) -> Steps[Place]:
    """The place, once it is sure that this database has our tables as this release needs them and, where a name is
    given, that it is the database of that name."""
    tables, name = (yield LOOK, ()).one()
    if database is not None and name != database:
        raise ConfigurationError(
            f"the connection is to the database {name!r}, the store is in {database!r}: events are added in the store's own "
            "database, or they could not commit with your rows"
        )
    lacking = missing([str(row[0]) for row in (yield LIST, ())]) if tables else migrations()
    if lacking:
        raise StoreOutdated(
            f"the database lacks {', '.join(lacking)}: run `posthouse db upgrade TARGET`, your module:service or the URL of the store"
        )
    identity, shards = (yield PLACE, ()).one()
    if wanted_shards not in (None, shards):
        raise ConfigurationError(
            f"the outbox was made with {shards} shards and {wanted_shards} are configured: the number is fixed at creation, "
            f"so set shards={shards} or leave it out"
        )
    return Place(str(identity), int(str(shards)))


def proving() -> Steps[Sequence[str]]:
    """Refuse tables that cannot keep the promise; sentences on a server that weakens it."""
    cache, indexes, fsync, full_page_writes = (yield SOUND, ()).one()
    if (cache, indexes) != (1, 2):
        raise StoreError(
            f"posthouse.outbox must draw its ids one by one (CACHE is {cache}) and have two valid indexes (found {indexes}): "
            "put them back as the migrations made them"
        )
    return [
        f"the server runs with {name}=off: a crash can lose or mangle committed events"
        for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes))
        if value == "off"
    ]


def _names(folder: str) -> Sequence[str]:
    entries = HERE.joinpath(folder).iterdir()
    return sorted(entry.name.removesuffix(".sql") for entry in entries if entry.name.endswith(".sql"))


def _text(name: str) -> str:
    return HERE.joinpath(f"{name}.sql").read_text(encoding="utf-8")

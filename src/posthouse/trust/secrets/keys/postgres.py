"""PostgresKeys: the keys in a PostgreSQL, in a database of their own with backups of their own. Any number of hosts share it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from posthouse.errors import ConfigurationError, SecretsUnavailable, ValueRefused
from posthouse.redaction import redacted
from posthouse.trust.secrets.keystore import Erasure, Holder, KeyStore, StoredKey

FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
REFUSALS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    UnicodeEncodeError,
)
"""What is wrong with a value, however often it is tried: all else says nothing about the event, and passes or is mended."""
CONNECTIONS = 4
FORGOTTEN = 86_400
"""Seconds after which a process that fell silent is not listed any more."""

# One process at a time makes the tables.
ALONE = "SELECT pg_advisory_xact_lock(hashtext('posthouse_keys'))"
MADE = "SELECT to_regclass('posthouse_keys.holder') IS NOT NULL"
# A store is known by its tables, whatever its schema is called.
BESIDE_STORE = "SELECT count(DISTINCT relnamespace) FROM pg_class WHERE relname IN ('incarnation', 'stream_event') AND relkind = 'r'"

TABLES = """
CREATE SCHEMA IF NOT EXISTS posthouse_keys;
-- One row: the number of the last erasure. Whoever erases locks it, so that numbers follow commits.
CREATE TABLE IF NOT EXISTS posthouse_keys.counter (one boolean PRIMARY KEY DEFAULT true CHECK (one), last bigint NOT NULL);
INSERT INTO posthouse_keys.counter (last) VALUES (0) ON CONFLICT DO NOTHING;
-- The key of each person, wrapped; once he was erased, a tombstone.
CREATE TABLE IF NOT EXISTS posthouse_keys.key (
    tenant text NOT NULL,
    subject text NOT NULL,
    wrapped bytea,
    made_at timestamptz NOT NULL DEFAULT now(),
    erased_at double precision,
    erasure bigint UNIQUE,
    why text NOT NULL DEFAULT '',
    by text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, subject),
    CHECK ((wrapped IS NULL) = (erasure IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1);
-- Processes that may hold keys in memory.
CREATE TABLE IF NOT EXISTS posthouse_keys.holder (
    id text PRIMARY KEY,
    name text NOT NULL,
    forgot bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    lease double precision NOT NULL
);
"""
KEY = "tenant, subject, wrapped, extract(epoch FROM made_at)::double precision, erased_at"
# The keys of some persons of a tenant.
GET = f"SELECT {KEY} FROM posthouse_keys.key WHERE tenant = $1 AND subject = ANY ($2)"
# Give them some. In one order, or two who add the same would wait for each other.
ADD = """
INSERT INTO posthouse_keys.key (tenant, subject, wrapped)
SELECT $1, n.subject, n.wrapped FROM unnest($2::text[], $3::bytea[]) n (subject, wrapped) ORDER BY n.subject ON CONFLICT DO NOTHING
"""
# None is given twice, though the counter be brought back from a backup.
NEXT = "SELECT greatest(last + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM posthouse_keys.counter FOR UPDATE"
TOMBSTONE = "tenant, subject, why, by, erased_at, erasure"


def open_at(url: str, patience: float) -> KeyStore:
    """At `postgresql://…/keys`; with `beside_store=true` also in the database of a service."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    forced = options.pop("beside_store", "") == "true"
    return PostgresKeys(parts._replace(query=urlencode(options)).geturl(), patience, beside_store=forced)


class PostgresKeys:
    """`url` names the database; `beside_store` lets it be that of a service, whose backups bring erased persons back."""

    def __init__(self, url: str, patience: float = 5.0, *, beside_store: bool = False) -> None:
        self.place = redacted(url)
        self.beside_store = beside_store
        self._url = url
        self._patience = patience
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def upgrade(self) -> bool:
        async with self._transaction() as run:
            await self._refuse_store(run)
            await run.execute(ALONE)
            made = not await run.fetchval(MADE)
            if made:
                await run.execute(TABLES)
            return made

    async def begin(self) -> None:
        await self.present()

    async def is_new(self) -> bool:
        async with self._transaction() as run:
            return not await run.fetchval("SELECT EXISTS (SELECT FROM posthouse_keys.key)")

    async def present(self) -> None:
        async with self._transaction() as run:
            await self._refuse_store(run)
            if not await run.fetchval(MADE):
                raise ConfigurationError(
                    f"the key store {self.place} has no tables: run `posthouse subject upgrade TARGET`"
                )

    async def is_beside_store(self) -> bool:
        """Whether its database has the tables of a service's store."""
        async with self._transaction() as run:
            return bool(await run.fetchval(BESIDE_STORE))

    async def get(self, tenant: str, subjects: Collection[str]) -> Mapping[str, StoredKey]:
        async with self._transaction() as run:
            rows = await run.fetch(GET, tenant, list(subjects))
        return {row[1]: StoredKey(*row) for row in rows}

    async def add(self, tenant: str, wrapped: Mapping[str, bytes]) -> Mapping[str, StoredKey]:
        async with self._transaction() as run:
            await run.execute(ADD, tenant, list(wrapped), list(wrapped.values()))
            rows = await run.fetch(GET, tenant, list(wrapped))
        return {row[1]: StoredKey(*row) for row in rows}

    async def erase(self, erasure: Erasure) -> Erasure:
        async with self._transaction() as run:
            await run.execute("SET LOCAL synchronous_commit = on")
            number = await run.fetchval(NEXT)
            await run.execute(
                "INSERT INTO posthouse_keys.key AS k (tenant, subject, erased_at, erasure, why, by) VALUES ($1, $2, $3, $4, $5, $6) "
                "ON CONFLICT (tenant, subject) DO UPDATE SET wrapped = NULL, erased_at = excluded.erased_at, "
                "erasure = excluded.erasure, why = excluded.why, by = excluded.by WHERE k.erasure IS NULL",
                erasure.tenant, erasure.subject, erasure.at, number, erasure.why, erasure.by,
            )  # fmt: skip
            row = await run.fetchrow(
                f"SELECT {TOMBSTONE} FROM posthouse_keys.key WHERE tenant = $1 AND subject = $2",
                erasure.tenant, erasure.subject,
            )  # fmt: skip
            assert row is not None
            if row["erasure"] == number:
                await run.execute("UPDATE posthouse_keys.counter SET last = $1", number)
            return _erasure(row)

    async def erased(self, tenant: str | None = None, subjects: Collection[str] | None = None) -> Sequence[Erasure]:
        async with self._transaction() as run:
            rows = await run.fetch(
                f"SELECT {TOMBSTONE} FROM posthouse_keys.key WHERE erasure IS NOT NULL AND ($1::text IS NULL OR tenant = $1) "
                "AND ($2::text[] IS NULL OR subject = ANY ($2)) ORDER BY erasure",
                tenant, None if subjects is None else list(subjects),
            )  # fmt: skip
        return [_erasure(row) for row in rows]

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        sql = f"SELECT {KEY} FROM posthouse_keys.key WHERE tenant = $1 AND subject > $2 ORDER BY subject LIMIT $3"
        async with self._transaction() as run:
            return [StoredKey(*row) for row in await run.fetch(sql, tenant, after, limit)]

    async def hear(self, holder: Holder) -> tuple[int, Sequence[tuple[str, str]]]:
        async with self._transaction() as run:
            await run.execute(
                "INSERT INTO posthouse_keys.holder (id, name, forgot, lease) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE "
                "SET forgot = excluded.forgot, seen_at = clock_timestamp(), lease = excluded.lease",
                holder.id, holder.name, holder.forgot, holder.lease,
            )  # fmt: skip
            await run.execute(
                "DELETE FROM posthouse_keys.holder WHERE seen_at < now() - make_interval(secs => $1)", float(FORGOTTEN)
            )
            last = await run.fetchval("SELECT last FROM posthouse_keys.counter")
            if holder.forgot > 0 and not await run.fetchval(
                "SELECT EXISTS (SELECT FROM posthouse_keys.key WHERE erasure = $1)", holder.forgot
            ):
                last = 0
            since = last if holder.forgot < 0 else holder.forgot
            rows = await run.fetch(
                "SELECT tenant, subject FROM posthouse_keys.key WHERE erasure > $1 AND erasure <= $2", since, last
            )
        return last, [(row[0], row[1]) for row in rows]

    async def holders(self) -> Sequence[Holder]:
        async with self._transaction() as run:
            rows = await run.fetch(
                "SELECT id, name, forgot, extract(epoch FROM clock_timestamp() - seen_at)::double precision AS age, lease "
                "FROM posthouse_keys.holder ORDER BY seen_at DESC"
            )
        return [Holder(**dict(row)) for row in rows]

    async def leave(self, id: str) -> None:
        async with self._transaction() as run:
            await run.execute("DELETE FROM posthouse_keys.holder WHERE id = $1", id)

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def _refuse_store(self, run: Any) -> None:
        if not self.beside_store and await run.fetchval(BESIDE_STORE):
            raise ConfigurationError(
                f"the key store {self.place} lies in the database of a service, whose backups would bring erased keys back: give the "
                "keys a database of their own, or say beside_store=true in the URL if that is meant"
            )

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        try:
            async with asyncio.timeout(self._patience):
                pool = await self._pool_here()
                async with pool.acquire() as connection, connection.transaction():
                    yield connection
        except REFUSALS as error:
            raise ValueRefused(f"the key store {self.place} takes no such value: {redacted(str(error))}") from error
        except FOREIGN as error:
            words = str(error) or type(error).__name__
            raise SecretsUnavailable(f"the key store {self.place}: {redacted(words)}") from error

    async def _pool_here(self) -> asyncpg.Pool[asyncpg.Record]:
        """Of this event loop: that of one that has ended is of no use."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            self._loop = loop
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=CONNECTIONS,
                timeout=self._patience,
                command_timeout=self._patience,
                statement_cache_size=0,  # poolers between transactions know no prepared statements
            )
        return self._pool


def _erasure(row: Any) -> Erasure:
    tenant, subject, why, by, at, number = row
    return Erasure(tenant=tenant, subject=subject, why=why, by=by, at=at, number=number)

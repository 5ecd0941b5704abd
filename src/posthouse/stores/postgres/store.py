"""PostgresStore: the store in a PostgreSQL database, beside the user's own tables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager

import msgspec

from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, StoreOutdated, did_you_mean
from posthouse.local.postgres.pool import server_of
from posthouse.local.postgres.pooler import Pooler
from posthouse.local.sharing import Sharing
from posthouse.store import (
    Action,
    ActionTable,
    Counts,
    Gauges,
    GrantTable,
    HeldTable,
    InboxTable,
    JobTable,
    Migration,
    OutboxRow,
    OutboxTable,
    Parameters,
    Restoration,
    Sums,
    TimerTable,
    Transaction,
    VersionUsageTable,
    WalReader,
    WorkerTable,
)
from posthouse.store.archives import ArchiveTable
from posthouse.store.browsing import Browsing
from posthouse.store.placeholders import DOLLAR, bound
from posthouse.store.projections import ProjectionTable
from posthouse.store.replays import ReplayTable
from posthouse.store.retention import RetentionTable
from posthouse.store.sagas import SagaTable
from posthouse.store.schedules import ScheduleTable
from posthouse.store.streams import StreamTable
from posthouse.stores.postgres.actions import PostgresActions
from posthouse.stores.postgres.archives import PostgresArchives
from posthouse.stores.postgres.browsing import PostgresBrowsing
from posthouse.stores.postgres.changes import Changes
from posthouse.stores.postgres.checks import LISTENING, PostgresChecks
from posthouse.stores.postgres.counting import counted, summed
from posthouse.stores.postgres.database import RUNTIME_CONNECTIONS, Database, Settings
from posthouse.stores.postgres.gauging import gauged
from posthouse.stores.postgres.grants import PostgresGrants
from posthouse.stores.postgres.handler_transaction import HandlerSessions, HandlerTransaction
from posthouse.stores.postgres.held import PostgresHeld
from posthouse.stores.postgres.inbox import PostgresInbox
from posthouse.stores.postgres.jobs import PostgresJobs
from posthouse.stores.postgres.joins import PostgresJoined
from posthouse.stores.postgres.outbox import PostgresOutbox
from posthouse.stores.postgres.projections import PostgresProjections
from posthouse.stores.postgres.recording import recorded
from posthouse.stores.postgres.replays import PostgresReplays
from posthouse.stores.postgres.retention import PostgresRetention
from posthouse.stores.postgres.roles import roles_script
from posthouse.stores.postgres.sagas import PostgresSagas
from posthouse.stores.postgres.schedules import PostgresSchedules
from posthouse.stores.postgres.schema import MOST_SHARDS, applied, is_post, migrations, missing, script
from posthouse.stores.postgres.separation import Separation
from posthouse.stores.postgres.streams import PostgresStreams
from posthouse.stores.postgres.timers import PostgresTimers
from posthouse.stores.postgres.transaction import BEGUN, PostgresTransaction
from posthouse.stores.postgres.upgrade import upgraded
from posthouse.stores.postgres.version_usage import PostgresVersionUsage
from posthouse.stores.postgres.workers import PostgresWorkers
from posthouse.stores.sessions import refusal, shape_of

WEEK = 7 * 86_400.0
WAL_KEEP = 2**30
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

SHARED = ("public", "information_schema")

# The schemas of this database that hold a store.
STORES = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'outbox_kept' ORDER BY 1
"""

# Everything that was perhaps not sent is sent again, under a new lineage.
RECOVER = "SELECT posthouse.recover()"

# The lineage of new facts, and how many there are to send.
RECOVERED = "SELECT m.lineage, (SELECT count(*) FROM posthouse.outbox) FROM posthouse.meta m"


class PostgresStore:
    """A store in a schema of a PostgreSQL database, 13 or later.

    `schema` is where its tables live. `writers` transactions may be open at once in this process; a few connections more
    serve the runtime itself. `shards` is fixed when the tables are made (16 unless given). `idempotency_window` is how
    long, in seconds, an idempotency key is remembered; `patience` how long to wait for a connection. `pooler` says what
    stands between: behind one in `transaction` mode, such as PgBouncer, nothing is kept in a session; `listen_url` then
    leads to the server itself, for the one connection on which a relay hears the hints of other machines. `durable` False
    accepts a server that forgets commits in a crash, for tests. `wal_keep` is how many bytes of log a relay that follows it
    may make the server keep. `clock`: leases and due times go by the database's clock,
    so that machines need not agree on the time; a clock that is given is used instead of it, for tests.

    `isolation`: each transaction sees the rows of its own tenant only, as row-level security has it. `url` is then that of
    the application's role and `runtime_url` that of the role that carries the events of all tenants; roles that would not
    be held to it are refused.
    """

    embedded = False

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        schema: str = "posthouse",
        writers: int = 8,
        shards: int | None = None,
        idempotency_window: float = WEEK,
        patience: float = 30.0,
        pooler: Pooler = "none",
        listen_url: str | None = None,
        durable: bool = True,
        isolation: bool = False,
        runtime_url: str | None = None,
        wal_keep: int = WAL_KEEP,
    ) -> None:
        problems = []
        if not NAME.fullmatch(schema):
            problems.append(f"schema={schema!r}: use lower-case letters, digits and underscores")
        elif schema.startswith("pg_") or schema in SHARED:
            problems.append(f"schema={schema!r}: the store needs a schema of its own, such as 'posthouse'")
        if shards is not None and not 1 <= shards <= MOST_SHARDS:
            problems.append(f"shards={shards}: choose 1 to {MOST_SHARDS}")
        if writers < 1:
            problems.append(f"writers={writers}: at least one is needed")
        if isolation != (runtime_url is not None):
            problems.append(
                "isolation and runtime_url belong together: the application's role sees one tenant at a time, so the runtime "
                "needs a role of its own; `posthouse db roles` sets both up"
            )
        if problems:
            raise ConfigurationError(*problems)
        self.writers = writers
        settings = Settings(
            schema=schema,
            writers=writers,
            shards=shards,
            patience=patience,
            pooled=pooler == "transaction",
            listen_url=listen_url,
        )
        self._clock = clock
        self._wal_keep = wal_keep
        self.isolated = isolation
        self._database = self._application = Database(url, settings)
        self._separation: Separation | None = None
        if runtime_url is not None:
            self._database = Database(runtime_url, msgspec.structs.replace(settings, writers=RUNTIME_CONNECTIONS))
            self._separation = Separation(self._application, self._database)
            self._application.notifier = self._database.notifier
            self._application.refuse = self._database.refuse = self._separation.refuse
        self._checks = PostgresChecks(self._database, declared=pooler, durable=durable)
        self._handlers = HandlerSessions(self._application)
        self._changes = Changes(self._database, clock)
        self._outbox = PostgresOutbox(self._database, clock, idempotency_window)
        self.outbox: OutboxTable = self._outbox
        self.inbox: InboxTable = PostgresInbox(self._database, clock)
        self.held: HeldTable = PostgresHeld(self._database, clock)
        self.timers: TimerTable = PostgresTimers(self._database, self._outbox, idempotency_window)
        self.version_usage: VersionUsageTable = PostgresVersionUsage(self._database, clock)
        self.workers: WorkerTable = PostgresWorkers(self._database, clock)
        self.actions: ActionTable = PostgresActions(self._database, clock)
        self.jobs: JobTable = PostgresJobs(self._database, clock)
        self.grants: GrantTable = PostgresGrants(self._database, clock)
        self.retention: RetentionTable = PostgresRetention(self._database, clock)
        self.schedules: ScheduleTable = PostgresSchedules(self._database, clock)
        self.sagas: SagaTable = PostgresSagas(self._database, clock)
        self.streams: StreamTable = PostgresStreams(self._database)
        self.browsing: Browsing = PostgresBrowsing(self._database)
        self.projections: ProjectionTable = PostgresProjections(self._database, clock, isolated=isolation)
        self.archives: ArchiveTable = PostgresArchives(self._database, clock)
        self.replays: ReplayTable = PostgresReplays(self._database, clock)

    def share(self, sharing: Sharing) -> None:
        """Use connections together with the broker, where that is in the same database."""
        self._application.share.sharing = self._database.share.sharing = sharing

    @property
    def notes(self) -> Sequence[str]:
        """Sentences on what weakens the promise here; known once the store was used."""
        return self._database.notes

    def begin(
        self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False
    ) -> PostgresTransaction | HandlerTransaction:
        tenant = tenant if self.isolated else None
        found = None if shape is None else shape_of(shape, "PostgreSQL")
        if found is None or found.on == "asyncpg":
            database = self._database if tenant is None else self._application
            return PostgresTransaction(database, tenant=tenant, lazily=lazily)
        return self._handlers.begin(found, tenant)

    def join(self, theirs: object) -> Transaction:
        return theirs if isinstance(theirs, BEGUN) else PostgresJoined(self._database, theirs)

    async def append_after(self, sql: str, parameters: Parameters, row: OutboxRow) -> bool | None:
        if self.isolated or self._database.settings.pooled:
            return None
        sql, parameters = bound(sql, parameters, DOLLAR)
        return await recorded(self._database, sql, list(parameters), row)

    def view(self, tx: Transaction, wanted: type) -> AbstractContextManager[object]:
        if isinstance(tx, HandlerTransaction):
            return tx.view(wanted)
        if not isinstance(tx, PostgresTransaction):
            raise ConfigurationError(
                "only a transaction that the store began can be viewed: a joined one is yours already"
            )
        found = shape_of(wanted, "PostgreSQL")
        if found is None or found.on != "asyncpg":
            raise ConfigurationError(
                f"this transaction was begun for asyncpg, not for {wanted.__module__}.{wanted.__qualname__}: begin it with "
                "that shape"
            )
        return contextlib.nullcontext(tx.connection)

    def refusal(self, shape: type, *, plain: bool) -> str | None:
        return refusal(shape, "PostgreSQL", plain=plain)

    def migrations(self) -> Sequence[Migration]:
        database = self._database
        return [
            Migration(name=name, post=is_post(name), sql=database.text(script(name, database.settings.shards)))
            for name in migrations()
        ]

    async def upgrade(self, *, post: bool = False) -> Sequence[str]:
        """A step that cannot have its locks at once gives way and tries again, so that producers never queue behind it."""
        if self.isolated:
            raise ConfigurationError(
                "neither role of an isolated store may change its tables: run `posthouse db upgrade` with the URL of their owner, "
                "and then `posthouse db roles`"
            )
        return await upgraded(self._database, post=post)

    def roles_script(self, application: str, runtime: str) -> str:
        """The statements that set isolation up for these two roles, for the owner of the tables to run."""
        return roles_script(self._database.settings.schema, application, runtime)

    async def set_roles(self, application: str, runtime: str) -> None:
        """Run them, on a store whose URL is the owner's. Idempotent; again after an upgrade."""
        async with PostgresTransaction(self._database) as tx:
            await tx.run_script(self.roles_script(application, runtime))

    async def pending_migrations(self, *, post: bool = False) -> Sequence[str]:
        return missing(await self._database.carry_out(applied()), post=post)

    async def present(self) -> None:
        database = self._database
        present = await database.carry_out(applied())
        if not present:
            schema = database.settings.schema
            others = [str(row[0]) for row in await database.run(STORES, check=False)]
            hint = did_you_mean(schema, others) if others else ""
            raise StoreOutdated(
                f"the database {database.name} has no tables of Posthouse in the schema {schema!r}.{hint} They are made by "
                "`posthouse db upgrade TARGET`, or by the migrations of Alembic or Django; if they should be there, correct the URL of the store"
            )
        if lacking := missing(present):
            raise StoreOutdated(
                f"the database {database.name} lacks {', '.join(lacking)}: run `posthouse db upgrade TARGET`"
            )

    async def restored(self, *, dry_run: bool = False, action: Action | None = None) -> Restoration:
        """Relays notice a dump that was restored elsewhere by themselves."""
        async with self.begin() as tx:
            if not dry_run:
                await tx.run(RECOVER)
                if action is not None:
                    await self.actions.add(tx, action)
            ((lineage, again),) = await tx.run(RECOVERED)
            return Restoration(lineage=int(str(lineage)) + dry_run, again=int(str(again)))

    async def counts(self) -> Counts:
        return await counted(self._database, None if self._clock is None else self._clock.now())

    async def sums(self) -> Sums:
        return await summed(self._database)

    async def gauges(self, *, timeout: float = 5.0) -> Gauges:
        return await gauged(self._database, None if self._clock is None else self._clock.now(), timeout)

    async def checks(self, *, today: bool = True, shapes: Collection[type] = ()) -> Sequence[Check]:
        checks = await self._checks.lasting()
        if self._separation is not None:
            checks += await self._separation.checks()
        if today:
            checks += await self._checks.today(
                self._clock.now() if self._clock else None, self._most_connections(shapes)
            )
            checks.append(Check(name="wake-up", found=await self.wake()))
        return checks

    def _most_connections(self, shapes: Collection[type]) -> int:
        """To its server, in one process: those of the pools, one that listens, those of the libraries that handlers use beside
        asyncpg, and those of a broker there."""
        libraries = {found.on for shape in shapes if (found := shape_of(shape, "PostgreSQL"))} - {"asyncpg"}
        pools = {id(database): database.share for database in (self._application, self._database)}.values()
        sharing = self._database.share.sharing
        others = 0 if sharing is None else sharing.rooms.get(server_of(self._database.url), 0)
        return sum(pool.most for pool in pools) + LISTENING + self.writers * len(libraries) + others

    async def wake(self) -> str:
        return await self._changes.mode()

    def nudge(self) -> None:
        """Have a relay of this process look at once; for tests, since nobody tells it of a commit on a connection that was
        joined."""
        self._database.notifier.wake()

    async def changed(self, seen: int, seconds: float) -> int:
        return await self._changes.wait(seen, seconds)

    async def wal_reader(self) -> WalReader:
        try:
            from posthouse.stores.postgres.wal.proving import proved
            from posthouse.stores.postgres.wal.reader import PostgresWalReader
        except ImportError as error:
            raise ConfigurationError("the log is read with psycopg: pip install 'posthouse[wal]'") from error
        await proved(self._database)
        return PostgresWalReader(self._database, self._outbox, self.changed, self._wal_keep)

    async def aclose(self) -> None:
        await self._handlers.aclose()
        await self._application.close()
        await self._database.close()

"""Checks: whether a PostgreSQL is set up to keep the promise, and what stands in the way today."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.checks import Check, Judgement, judged
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.local.postgres import server, sessions
from posthouse.local.postgres.pooler import Pooler, pooler_check, probed
from posthouse.store import Rows
from posthouse.stores.postgres.counting import AHEAD, AHEAD_FIX
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import FOREIGN
from posthouse.stores.postgres.schema import applied, missing, proving
from posthouse.stores.waiting import waiting_checks

LISTENING = 1
"""The connection on which a relay hears hints."""
COUNTED_BYTES = 64 * 2**20
"""Of tables up to this size everything is counted, to see whether the tally is right."""
DEAD_ROWS = 100_000
"""Dead rows of a table from which on it is worth a word, when they are also more than the live ones."""

# Bytes of the outbox, with its partitions and indexes, and of everything else of ours.
DISK = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.oid = 'posthouse.outbox'::regclass
        OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = 'posthouse.outbox'::regclass)), 0)::bigint,
    coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relkind = 'r'
"""

# The tables with the most dead rows.
DEAD = """
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup FROM pg_stat_user_tables s
WHERE s.schemaname = '{schema}' ORDER BY s.n_dead_tup DESC LIMIT 1
"""

# Shards, those that a relay holds, stuck rows and their keys, and dead events.
WAITING = """
SELECT (SELECT count(*) FROM posthouse.shard),
    (SELECT count(*) FROM posthouse.shard l
     WHERE l.owner IS NOT NULL AND l.until > coalesce($1, extract(epoch FROM clock_timestamp())::double precision)),
    (SELECT coalesce(sum(t.number), 0) FROM posthouse.tallied() t WHERE t.kind = 'stuck'),
    (SELECT count(DISTINCT (s.topic, s.tenant, s.key)) FROM posthouse.stuck s),
    (SELECT coalesce(sum(t.number), 0) FROM posthouse.tallied() t WHERE t.kind = 'held' AND t.state = 'dead')
"""

# Whether everything that is tallied is little enough to be counted, and can be seen, and how many figures of the tally are not what is there.
COUNTABLE = """
SELECT sum(pg_relation_size(t)) <= $1::bigint AND posthouse.sees_all()
FROM unnest(ARRAY['posthouse.held', 'posthouse.stuck', 'posthouse.timer', 'posthouse.saga']::regclass[]) t
"""
WRONG = """
SELECT count(*) FROM (
    SELECT 1 FROM (
        SELECT * FROM posthouse.counted()
        UNION ALL SELECT t.kind, t.name, t.topic, t.state, -t.number FROM posthouse.tallied() t WHERE t.kind <> 'ended') d
    GROUP BY d.kind, d.name, d.topic, d.state HAVING sum(d.number) <> 0) w
"""

# How many runs of the server relays have seen, since when this one, and whether a cursor is ahead of it.
RUNS = (
    "SELECT m.runs, to_char(m.run_since, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), posthouse.is_ahead() FROM posthouse.meta m"
)

# What the relays that are alive say of where their rows come from.
READS = """
SELECT coalesce(m.reads, 'polls'), count(*) FROM posthouse.member m
WHERE m.until > coalesce($1, extract(epoch FROM clock_timestamp())::double precision) GROUP BY 1 ORDER BY 1
"""


class PostgresChecks:
    """The checks of one `PostgresStore`. `declared` is what its URL says of a pooler; `durable` False accepts a server
    that a crash may make forget."""

    def __init__(self, database: Database, *, declared: Pooler, durable: bool) -> None:
        self._database = database
        self._declared = declared
        self._unsafe: Judgement = "fail" if durable else "warn"

    async def lasting(self) -> list[Check]:
        """What only a change of settings changes."""
        checks = server.server_checks((await self._rows(server.SERVER)).one(), self._unsafe)
        checks += [server.role_check((await self._rows(server.ROLE)).one()), await self._pooler()]
        present = await self._database.carry_out(applied())
        checks += migration_checks(missing(present), missing(present, post=True))
        if not missing(present):
            checks.append(await self._outbox())
        return checks

    async def today(self, now: float | None, connections: int) -> list[Check]:
        """What may be different in a minute. `connections`: so many may one process of the service have."""
        hidden = int(str((await self._rows(sessions.HIDDEN)).scalar()))
        checks = [sessions.oldest_check(await self._rows(sessions.OLDEST), hidden)]
        checks += sessions.prepared_checks(await self._rows(sessions.PREPARED))
        checks += sessions.slot_checks(await self._rows(sessions.SLOTS))
        checks.append(sessions.connections_check((await self._rows(sessions.CONNECTIONS)).one(), connections, ""))
        checks += sessions.limit_checks((await self._rows(sessions.LIMITS)).one())
        if not missing(await self._database.carry_out(applied())):
            checks += await self._tables(now)
        return checks

    async def _rows(self, sql: str, *parameters: object) -> Rows:
        return await self._database.run(sql, *parameters, check=False)

    async def _pooler(self) -> Check:
        database = self._database
        try:
            found = await probed(database.url, connecting=database.settings.patience, name=database.share.name)
        except FOREIGN as error:
            return Check(
                name="pooler",
                found=f"not found out: {error}",
                judgement="warn",
                fix="two connections more were needed to look",
            )
        return pooler_check(found, self._declared)

    async def _outbox(self) -> Check:
        try:
            await self._database.carry_out(proving())
        except StoreUnavailable:
            raise  # nothing is known about the tables
        except StoreError as error:
            fix = "put the tables back as the migrations made them"
            return Check(name="outbox", found=str(error), judgement="fail", fix=fix)
        return Check(name="outbox", found="ids are drawn one by one, its indexes are valid")

    async def _tables(self, now: float | None) -> list[Check]:
        outbox, all_ = (int(str(size)) for size in (await self._rows(DISK)).one())
        shards, held, stuck, keys, dead = (int(str(figure)) for figure in (await self._rows(WAITING, now)).one())
        return [
            Check(name="disk", found=f"the outbox has {_mib(outbox)}, all our tables {_mib(all_)}"),
            run_check(*(await self._rows(RUNS)).one()),
            *dead_row_checks(await self._rows(DEAD)),
            *reading_checks(await self._rows(READS, now)),
            *await self._tally(),
            *waiting_checks(shards=shards, held=held, stuck=stuck, stuck_keys=keys, dead=dead),
        ]

    async def _tally(self) -> list[Check]:
        if not (await self._rows(COUNTABLE, COUNTED_BYTES)).scalar():
            return []
        wrong = int(str((await self._rows(WRONG)).scalar()))
        return [
            judged(
                "tally",
                f"{wrong} of its figures are not what is there" if wrong else "its figures are what is there",
                wrong=wrong > 0,
                fix=f"rows were copied or changed without triggers: SELECT {self._database.settings.schema}.recount(), "
                "as the role that the runtime connects with",
            )
        ]


def migration_checks(needed: Sequence[str], pending: Sequence[str]) -> list[Check]:
    """What is missing to run, and what is left to finish."""
    if needed:
        found, fix = (
            f"lacking {', '.join(needed)}",
            "run `posthouse db upgrade TARGET`, or the migrations of Alembic or Django",
        )
        return [Check(name="migrations", found=found, judgement="fail", fix=fix)]
    if pending:
        fix = "when every process is of this release, run `posthouse db upgrade --post`"
        return [Check(name="migrations", found=f"{', '.join(pending)} are left", fix=fix)]
    return [Check(name="migrations", found="all are applied")]


def reading_checks(rows: Sequence[Sequence[object]]) -> list[Check]:
    """From READS: a relay that was to follow the log and polls says why."""
    return [
        judged(
            "rows of relays",
            f"{number} from {reads}" if reads == "the log" else f"{number} by {reads}",
            wrong=str(reads).startswith("polls, because"),
            fix="no event is lost, they come a little later; it goes back to the log by itself when it can",
        )
        for reads, number in rows
    ]


def run_check(runs: object, since: object, ahead: object) -> Check:
    """From RUNS."""
    if ahead:
        return Check(name="runs of the server", found=AHEAD, judgement="fail", fix=AHEAD_FIX)
    found = f"this is the {runs}. that relays have seen, since {since}" if runs else "no relay has leased anything yet"
    return Check(name="runs of the server", found=found)


def dead_row_checks(rows: Sequence[Sequence[object]]) -> list[Check]:
    """From DEAD."""
    return [
        judged(
            "dead rows",
            f"{table} has {int(str(dead)):,} beside {int(str(live)):,} live ones",
            wrong=int(str(dead)) >= DEAD_ROWS and int(str(dead)) > int(str(live)),
            fix=f"an open transaction keeps vacuum from them, or autovacuum is too slow: VACUUM {table} after ending it",
        )
        for table, dead, live in rows
    ]


def _mib(size: int) -> str:
    return f"{size / 1024**2:,.1f} MiB"

"""Jobs: what operators asked to be done to many things."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.jobs import ENDED, Job, JobState
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import JOB, job_columns, job_of, progress_columns, state_of

# The time, once.
CLOCK = f"WITH clock AS MATERIALIZED (SELECT {NOW} AS now)"

# As it is read.
READ = f"{JOB}, leased_until - clock.now, created_at, changed_at, ended_at"

# Add one.
ADD = f"""
{CLOCK} INSERT INTO posthouse.job ({JOB}, leased_until, created_at, changed_at)
SELECT $2::text, $3::text, $4::text, $5::bytea, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::bigint,
    $12::bytea, $13::boolean, $14::text, $15::text, $16::bigint, 0, clock.now, clock.now FROM clock
"""

# One of them.
GET = f"{CLOCK} SELECT {READ} FROM posthouse.job CROSS JOIN clock WHERE id = $2"

# Those of some services, newest first.
FIND = f"""
{CLOCK} SELECT {READ} FROM posthouse.job CROSS JOIN clock
WHERE service = ANY($2::text[]) AND ($3::text = '' OR id < $3) ORDER BY id DESC LIMIT $4
"""

# The oldest that nobody runs. A lease that lasts longer than one ever does was given by a clock that was set back since.
TAKE = f"""
{CLOCK}, free AS MATERIALIZED (
    SELECT j.id AS free_id FROM posthouse.job j, clock c
    WHERE j.state = 'running' AND (j.leased_until <= c.now OR j.leased_until > c.now + 2 * $4::double precision) AND j.service = ANY($2::text[])
        AND ($5::text[] IS NULL OR j.act = ANY($5::text[])) AND j.id <> ALL($6::text[])
    ORDER BY j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED)
UPDATE posthouse.job SET holder = $3, token = token + 1, leased_until = clock.now + $4::double precision
FROM clock, free WHERE id = free.free_id RETURNING {READ}
"""

# How far it is, and how it ended, by whoever has its lease.
SAVE = f"""
{CLOCK}, saved AS (
    UPDATE posthouse.job SET position = $2, done = $3, refused = $4, applied = $5, failed = $6, open = $7,
    canary_passed = canary_passed OR $8, note = $9, changed_at = clock.now,
    leased_until = clock.now + $10::double precision,
    ended_at = CASE WHEN state = 'running' AND $11::text IS NOT NULL THEN clock.now ELSE ended_at END,
    state = CASE WHEN state = 'running' THEN coalesce($11::text, state) ELSE state END
    FROM clock WHERE id = $12 AND token = $13 RETURNING state)
SELECT state, CASE WHEN state = ANY ($14::text[]) THEN posthouse.release_replay($12, $1)::text END FROM saved
"""

# What it holds, it holds no more.
RELEASE = "SELECT posthouse.release_replay($1, $2)"

# What an operator decides.
DECIDE = f"""
{CLOCK} UPDATE posthouse.job SET state = $2, changed_at = clock.now, canary_passed = canary_passed OR $3,
    ended_at = CASE WHEN $2 = 'cancelled' THEN clock.now END
FROM clock WHERE id = $4 AND state IN ('running', 'paused')
"""

# Forget the oldest.
PURGE = f"""
DELETE FROM posthouse.job WHERE id IN (
    SELECT o.id FROM posthouse.job o WHERE o.ended_at < {NOW} - $2::double precision ORDER BY o.ended_at LIMIT $3)
"""


class PostgresJobs:
    """The jobs of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, job: Job) -> None:
        await own(tx).run(ADD, self._now(), *job_columns(job))

    async def get(self, id: str) -> Job | None:
        found = list(await self._database.run(GET, self._now(), id))
        return job_of(found[0]) if found else None

    async def find(self, services: Sequence[str], *, before: str = "", limit: int = 100) -> Sequence[Job]:
        found = await self._database.run(FIND, self._now(), list(services), before, limit)
        return [job_of(columns) for columns in found]

    async def take(
        self,
        services: Sequence[str],
        holder: str,
        seconds: float,
        *,
        acts: Sequence[str] | None = None,
        besides: Sequence[str] = (),
    ) -> Job | None:
        known = None if acts is None else list(acts)
        found = list(await self._database.run(TAKE, self._now(), list(services), holder, seconds, known, list(besides)))
        return job_of(found[0]) if found else None

    async def save(self, job: Job, seconds: float, *, ended: JobState | None = None) -> JobState | None:
        parameters = (*progress_columns(job), seconds, ended, job.id, job.token, list(ENDED))
        found = list(await self._database.run(SAVE, self._now(), *parameters))
        return state_of(found[0][0]) if found else None

    async def decide(self, tx: Transaction, id: str, state: JobState, *, canary_passed: bool = False) -> bool:
        done = bool((await own(tx).run(DECIDE, self._now(), state, canary_passed, id)).rowcount)
        if done and state in ENDED:
            await own(tx).run(RELEASE, id, self._now())
        return done

    async def purge(self, age: float, limit: int) -> int:
        return (await self._database.run(PURGE, self._now(), age, limit)).rowcount

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()

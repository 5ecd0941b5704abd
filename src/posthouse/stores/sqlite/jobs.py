"""Jobs: what operators asked to be done to many things."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.jobs import ENDED, Job, JobState
from posthouse.stores.rows import JOB, job_columns, job_of, progress_columns, state_of
from posthouse.stores.sqlite.database import Database, own
from posthouse.stores.sqlite.replays import release

# As it is read, at a time.
READ = f"{JOB}, leased_until - ?1, created_at, changed_at, ended_at"

# Add one.
ADD = f"""
INSERT INTO posthouse_job ({JOB}, leased_until, created_at, changed_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, 0, ?1, ?1)
"""

# One of them.
GET = f"SELECT {READ} FROM posthouse_job WHERE id = ?2"

# Those of some services, newest first.
FIND = f"""
SELECT {READ} FROM posthouse_job WHERE service IN (SELECT value FROM json_each(?2)) AND (?3 = '' OR id < ?3)
ORDER BY id DESC LIMIT ?4
"""

# The oldest that nobody runs. A lease that lasts longer than one ever does was given by a clock that was set back since.
TAKE = f"""
UPDATE posthouse_job SET holder = ?3, token = token + 1, leased_until = ?1 + ?4 WHERE id = (
    SELECT id FROM posthouse_job WHERE state = 'running' AND (leased_until <= ?1 OR leased_until > ?1 + 2 * ?4)
        AND service IN (SELECT value FROM json_each(?2)) AND (?5 IS NULL OR act IN (SELECT value FROM json_each(?5)))
        AND id NOT IN (SELECT value FROM json_each(?6)) ORDER BY id LIMIT 1)
RETURNING {READ}
"""

# How far it is, and how it ended, by whoever has its lease.
SAVE = """
UPDATE posthouse_job SET position = ?2, done = ?3, refused = ?4, applied = ?5, failed = ?6, open = ?7,
    canary_passed = max(canary_passed, ?8), note = ?9, changed_at = ?1, leased_until = ?1 + ?10,
    ended_at = CASE WHEN state = 'running' AND ?11 IS NOT NULL THEN ?1 ELSE ended_at END,
    state = CASE WHEN state = 'running' THEN coalesce(?11, state) ELSE state END
WHERE id = ?12 AND token = ?13 RETURNING state
"""

# What an operator decides.
DECIDE = """
UPDATE posthouse_job SET state = ?2, changed_at = ?1, canary_passed = max(canary_passed, ?3),
    ended_at = CASE WHEN ?2 = 'cancelled' THEN ?1 END
WHERE id = ?4 AND state IN ('running', 'paused')
"""

# Forget the oldest.
PURGE = (
    "DELETE FROM posthouse_job WHERE id IN (SELECT id FROM posthouse_job WHERE ended_at < ? ORDER BY ended_at LIMIT ?)"
)


class SqliteJobs:
    """The jobs of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, job: Job) -> None:
        own(tx).run(ADD, (self._clock.now(), *job_columns(job)))

    async def get(self, id: str) -> Job | None:
        found = await self._database.select(GET, (self._clock.now(), id))
        return job_of(found[0]) if found else None

    async def find(self, services: Sequence[str], *, before: str = "", limit: int = 100) -> Sequence[Job]:
        parameters = (self._clock.now(), _listed(services), before, limit)
        return [job_of(columns) for columns in await self._database.select(FIND, parameters)]

    async def take(
        self,
        services: Sequence[str],
        holder: str,
        seconds: float,
        *,
        acts: Sequence[str] | None = None,
        besides: Sequence[str] = (),
    ) -> Job | None:
        known = None if acts is None else _listed(acts)
        parameters = (self._clock.now(), _listed(services), holder, seconds, known, _listed(besides))
        async with self._database.begin(books=True) as tx:
            found = list(tx.run(TAKE, parameters))
        return job_of(found[0]) if found else None

    async def save(self, job: Job, seconds: float, *, ended: JobState | None = None) -> JobState | None:
        parameters = (self._clock.now(), *progress_columns(job), seconds, ended, job.id, job.token)
        async with self._database.begin(books=True) as tx:
            found = list(tx.run(SAVE, parameters))
            state = state_of(found[0][0]) if found else None
            if state in ENDED:
                release(tx, job.id, self._clock.now())
        return state

    async def decide(self, tx: Transaction, id: str, state: JobState, *, canary_passed: bool = False) -> bool:
        done = bool(own(tx).run(DECIDE, (self._clock.now(), state, canary_passed, id)).rowcount)
        if done and state in ENDED:
            release(own(tx), id, self._clock.now())
        return done

    async def purge(self, age: float, limit: int) -> int:
        async with self._database.begin(books=True) as tx:
            return tx.run(PURGE, (self._clock.now() - age, limit)).rowcount


def _listed(services: Sequence[str]) -> str:
    return msgspec.json.encode(list(services)).decode()

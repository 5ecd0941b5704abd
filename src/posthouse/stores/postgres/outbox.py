"""Outbox: append-only rows, read by relays through leased shards whose cursors are snapshots."""

from __future__ import annotations

import asyncio
import functools
import logging
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.pulse import alive
from posthouse.store import OutboxRow, OutboxShard, Poll, SentFilter, StuckRow, Tail, Transaction, parked
from posthouse.store.outbox import Number, ShardLease
from posthouse.stores.postgres.append import (
    APPEND_NUMBERED_WORDS,
    APPEND_WORDS,
    append_call,
    append_numbered_call,
    appending,
    appending_numbered,
    numbering,
)
from posthouse.stores.postgres.backlog import Page, Pages
from posthouse.stores.postgres.cursor import Drawn, Move, Whole
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import FENCED, sqlstate_of
from posthouse.stores.postgres.joins import theirs_of
from posthouse.stores.postgres.poll import FEW, POLL, POLL_FAST, Found, found_in
from posthouse.stores.postgres.schema import Place
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.postgres.stuck import (
    StuckRows,
    held_as,
    numbers_of,
    parking,
    run_of,
    written,
)
from posthouse.stores.postgres.tail import tail
from posthouse.stores.postgres.transaction import BEGUN, PostgresTransaction
from posthouse.stores.rows import OUTBOX, outbox_row, untyped

log = logging.getLogger("posthouse.store")

PARTITION_BYTES, SMALL_BYTES = 16 * 2**20, 2**20
"""A partition of the first size, indexes included, is left behind by writers, and truncated when all of it was sent. One of the
second size or less is cleared row by row."""
PARTITION_AGE = 600.0
"""Seconds after which a partition that is not small is left behind too."""
TIDY = 0.5
"""Seconds between two moves of cursors that passed nothing: they let old rows go and keep polls short."""

HELD = "$3::text::smallint[], $4::text::bigint[], $5"
"""Shards, their epochs and their run, written out: the driver takes longer for an array than the server for a text."""

# Shards for a relay.
LEASE = "SELECT number, epoch, run FROM posthouse.lease($1, $2, $3) ORDER BY number"

# Give up every shard, and leave the relays.
RELEASE = """
WITH gone AS (DELETE FROM posthouse.member WHERE owner = $1)
UPDATE posthouse.shard SET owner = NULL, until = 0 WHERE owner = $1
"""

# Every shard, and who holds it.
LEASES = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
SELECT l.number, l.epoch, CASE WHEN l.until > c.now THEN coalesce(l.owner, '') ELSE '' END,
    CASE WHEN l.owner IS NULL THEN 0 ELSE greatest(0, l.until - c.now) END
FROM clock c, posthouse.shard l ORDER BY l.number
"""

# Whether shards are held.
HOLDS = f"SELECT posthouse.holds($2, $3, $4, $5, {NOW})"

# Move cursors and count what was sent.
SETTLE = "SELECT posthouse.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

# The same for cursors that stand at one place.
SETTLE_TOGETHER = f"SELECT posthouse.settle_together($1, $2, {HELD}, $6::text::smallint[], $7, $8, $9, $10, $11)"

# Move on in a backlog and count what was sent; the backlog's number, 0 when it is at its end.
SETTLE_PAGE = "SELECT posthouse.settle_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"

# Let writers go on to an empty partition; the partitions that may be emptied.
ROTATE = "SELECT posthouse.rotate($1, $2, $3, $4, $5, $6)"

# Let the planner know of partitions that have grown.
ANALYZE_GROWN = "SELECT posthouse.analyze_grown($1)"

# Empty a partition if nothing in it is needed.
EMPTY = "SELECT posthouse.empty_partition($1)"

# Delete rows that no shard needs any more, where that is too little for a partition to be emptied.
DELETE_SENT = "SELECT posthouse.delete_sent($1, $2, $3, $4)"

# What is there, sent or not.
KEPT = f"""
SELECT {OUTBOX}
FROM posthouse.outbox WHERE id > $1 ORDER BY id LIMIT $2
"""

# What was sent and is there still.
SENT = """
SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body
FROM posthouse.outbox o JOIN posthouse.shard l ON l.number = o.shard LEFT JOIN posthouse.backlog b ON b.number = l.backlog
WHERE o.id > $1 AND ($3::text IS NULL OR o.topic = $3) AND ($4::text IS NULL OR o.tenant = $4) AND ($5::text IS NULL OR o.key = $5)
    AND (pg_visible_in_snapshot(o.xid, l.s1)
        OR coalesce(pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id, false))
    AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
ORDER BY o.id LIMIT $2
"""

# When rows were written.
WRITTEN = "SELECT o.id, extract(epoch FROM o.written_at)::double precision FROM posthouse.outbox o WHERE o.id = ANY ($1::bigint[])"

# The last row.
NEWEST = "SELECT coalesce(max(id), 0) FROM posthouse.outbox"

# The last number of a key, and the lineage.
LAST_NUMBER = """
SELECT coalesce((SELECT k.sequence FROM posthouse.key k WHERE k.topic = $1 AND k.tenant = $2 AND k.key = $3), 0), m.lineage
FROM posthouse.meta m
"""

# Intents whose window is over.
FORGET = f"""
DELETE FROM posthouse.idempotency WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM posthouse.idempotency i WHERE i.until <= {NOW}
    ORDER BY i.until LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


class PostgresOutbox(StuckRows):
    """The outbox of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None, window: float) -> None:
        super().__init__(database, clock)
        self._window = window
        self._pages = Pages(database)
        self._next_shard = 0
        self._next_backlog = 0
        self._tidied = float("-inf")
        self._drawn: Drawn | None = None
        self._run = ""
        """The run of the server that gave out shards last."""

    async def append(
        self, tx: Transaction, rows: Sequence[OutboxRow], *, with_commit: bool = False, numbered: bool = False
    ) -> Sequence[str]:
        def steps(place: Place) -> Steps[Sequence[str]]:
            return appending_numbered(rows, place) if numbered else appending(rows, place, self.now(), self._window)

        if isinstance(tx, BEGUN):
            tx.ready()
            tx.appended = True
            place = self._database.place or await self._database.check()
            if with_commit and isinstance(tx, PostgresTransaction) and tx.may_spell_out:
                words, spelled = (
                    (APPEND_NUMBERED_WORDS, append_numbered_call) if numbered else (APPEND_WORDS, append_call)
                )
                if call := spelled(rows, place):
                    await tx.run_with_commit(self._database.text(words) + call)
                    return [row.event_id for row in rows]
            return await tx.carry_out(steps(place))
        theirs = theirs_of(self._database, tx)
        return await theirs.carry_out(steps(await theirs.checked()))

    async def number(self, tx: Transaction, rows: Sequence[OutboxRow]) -> Sequence[Number]:
        if isinstance(tx, BEGUN):
            tx.ready()
            place = self._database.place or await self._database.check()
            return await tx.carry_out(numbering(rows, place, self.now(), self._window))
        theirs = theirs_of(self._database, tx)
        return await theirs.carry_out(numbering(rows, await theirs.checked(), self.now(), self._window))

    async def lease(self, owner: str, seconds: float) -> Sequence[OutboxShard]:
        shards = [OutboxShard(*untyped(row)) for row in await self._database.run(LEASE, owner, seconds, self.now())]
        self._notice(shards)
        return shards

    async def leases(self) -> Sequence[ShardLease]:
        return [ShardLease(*untyped(row)) for row in await self._database.run(LEASES, self.now())]

    def _notice(self, shards: Sequence[OutboxShard]) -> None:
        if not shards or shards[0].run == self._run:
            return
        if self._run:
            log.warning(
                "the database has begun another run: its server crashed, was restarted or promoted, or a backup was "
                "restored. What was in flight is read again from the cursors that it has"
            )
        self._run = shards[0].run

    async def release(self, owner: str) -> None:
        await self._database.run(RELEASE, owner)

    async def poll(self, shards: Sequence[OutboxShard], limit: int) -> Poll:
        if not shards:
            return Poll(shards=shards, rows=())
        page = await self._pages.next(shards, limit)
        if page is not None:
            return _poll_of_page(page, shards)
        return await self._poll_fast(shards, min(limit, FEW)) or (await self.poll_at(shards, limit))[0]

    async def _poll_fast(self, shards: Sequence[OutboxShard], few: int) -> Poll | None:
        """All that is new, if it is little; None when it is not, or when cursors may have to be tidied."""
        if self._next_backlog:
            return None
        tidy = self._is_untidy()
        drawn = self._drawn_in(shards)
        found = found_in(await self._database.fetch(POLL_FAST, *map(written, numbers_of(shards)), run_of(shards), few))
        if found.behind or len(found.rows) > few or (tidy and not found.rows):
            return None
        self._noted(shards, found, tidy)
        return _poll_of(shards, found, found.moves + found.still if tidy else found.moves, drawn)

    async def poll_at(self, shards: Sequence[OutboxShard], limit: int) -> tuple[Poll, str]:
        """A poll that looks at each shard, and the snapshot in which it looked."""
        tidy = self._is_untidy()
        ordered = sorted(shards, key=lambda shard: (shard.number < self._next_shard, shard.number))
        drawn = self._drawn_in(shards)
        parameters = (*numbers_of(ordered), run_of(shards), limit, tidy, self._next_backlog, drawn)
        found = found_in(await self._database.fetch(POLL, *parameters))
        self._noted(shards, found, tidy)
        if found.backlog is not None:
            self._next_backlog = found.backlog.number or 0
            return _poll_of_page(await self._pages.first(found.backlog, shards, limit), shards), found.snapshot
        self._next_backlog = 0
        if found.more_from is not None:
            self._next_shard = found.more_from
        return _poll_of(shards, found, found.moves + found.still, drawn), found.snapshot

    def _is_untidy(self) -> bool:
        return asyncio.get_running_loop().time() - self._tidied >= TIDY

    def _drawn_in(self, shards: Sequence[OutboxShard]) -> int | None:
        """An id up to which all are drawn already, if it was said in the run in which the shards were leased."""
        return self._drawn.id if self._drawn is not None and self._drawn.run == run_of(shards) else None

    def _noted(self, shards: Sequence[OutboxShard], found: Found, tidy: bool) -> None:
        self._drawn = Drawn(run_of(shards), found.drawn)
        if tidy:
            self._tidied = asyncio.get_running_loop().time()

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        cursor = poll.cursor
        if not poll.shards:
            return True
        if cursor is None:
            return bool((await self._database.run(HOLDS, self.now(), owner, *held_as(poll.shards))).scalar())
        waiting = [*stuck, *self._unnamed(poll, stuck)]
        unsent = {row.row.id for row in waiting}
        sent = Counter(row.topic for row in poll.rows if row.id not in unsent) if unsent else _topics(poll.rows)
        if isinstance(cursor, Page):
            return await self._turn(owner, poll.shards, cursor, sent, waiting)
        if not isinstance(cursor, Whole):
            raise StoreError("this poll is not of this store")
        return await self.move(owner, poll.shards, cursor, sent, waiting)

    async def move(
        self, owner: str, shards: Sequence[OutboxShard], whole: Whole, sent: Counter[str], waiting: Sequence[StuckRow]
    ) -> bool:
        """Move cursors, count what was sent and park what waits, all or nothing. False when the shards are not held, or
        a cursor stands elsewhere."""
        moves = whole.moves
        if whole.stand_together:
            moved = written(sorted([move.shard for move in moves]))
            parameters = (
                owner, self.now(), *map(written, numbers_of(shards)), run_of(shards), moved, moves[0].s1,
                moves[0].s1_after, whole.floor, list(sent), list(sent.values()),
            )  # fmt: skip
            return await self._settled(SETTLE_TOGETHER, parameters, waiting) is not None
        parameters = (
            owner, self.now(), *held_as(shards), [move.shard for move in moves], [move.s1 for move in moves],
            [move.s1_after for move in moves], whole.floor, list(sent), list(sent.values()),
        )  # fmt: skip
        return await self._settled(SETTLE, parameters, waiting) is not None

    async def _turn(
        self, owner: str, shards: Sequence[OutboxShard], page: Page, sent: Counter[str], waiting: Sequence[StuckRow]
    ) -> bool:
        """The same for a page of a backlog. Those behind it are read anew when some of it is parked: they may be of the
        same keys."""
        backlog = page.backlog
        parameters = (
            owner, self.now(), *held_as(shards), backlog.number, backlog.s2, backlog.last_id, page.last_id,
            backlog.hi_id, backlog.floor, backlog.shards, backlog.s1, list(sent), list(sent.values()),
        )  # fmt: skip
        number = await self._settled(SETTLE_PAGE, parameters, waiting)
        if number:
            self._next_backlog = number
            if not waiting:
                self._pages.settled(page, number)
        return number is not None

    async def _settled(self, statement: str, parameters: Sequence[object], waiting: Sequence[StuckRow]) -> int | None:
        """What a settle says; None when the shards are not ours any more, or a cursor stands elsewhere."""
        if waiting:
            places = parking(waiting, (await self._database.check()).shards, self.now())
            statement, parameters = _and_park(statement, len(parameters), len(places)), (*parameters, *places)
        try:
            done = await self._database.run(statement, *parameters)
            return untyped(done[0][0]) if done else None
        except StoreError as error:
            if sqlstate_of(error.__cause__ or error) == FENCED:
                return None
            raise

    def _unnamed(self, poll: Poll, stuck: Sequence[StuckRow]) -> Iterable[StuckRow]:
        """Rows that the poll flagged and the relay did not name: they are parked too, never passed over."""
        if not poll.stuck:
            return
        named = {row.row.id for row in stuck}
        for row in poll.rows:
            if row.id in poll.stuck and row.id not in named:
                yield parked(row)

    async def kept(self, after: int, limit: int) -> Sequence[OutboxRow]:
        return [outbox_row(*columns) for columns in await self._database.run(KEPT, after, limit)]

    async def sent(self, wanted: SentFilter, after: int, limit: int) -> Sequence[OutboxRow]:
        parameters = (after, limit, wanted.topic, wanted.tenant, wanted.key)
        return [outbox_row(*columns) for columns in await self._database.run(SENT, *parameters)]

    async def written(self, ids: Collection[int]) -> Mapping[int, float]:
        return {int(untyped(id)): float(untyped(at)) for id, at in await self._database.run(WRITTEN, sorted(ids))}

    async def newest(self) -> int:
        return int(untyped((await self._database.run(NEWEST)).scalar()))

    async def tail(
        self,
        after: str = "",
        *,
        upto: str = "",
        topics: Collection[str] = (),
        tenant: str | None = None,
        limit: int = 500,
        reach: int = 100_000,
    ) -> Tail:
        await self._database.check()
        return await tail(self._database, after, upto=upto, topics=topics, tenant=tenant, limit=limit, reach=reach)

    async def last_number(self, topic: str, tenant: str, key: str) -> tuple[int, int]:
        sequence, lineage = untyped((await self._database.run(LAST_NUMBER, topic, tenant, key)).one())
        return sequence, lineage

    async def purge(self, limit: int, *, keep: float = 0.0, room: int = 0) -> int:
        now = self.now()
        await self._database.run(FORGET, now, limit)
        sizes = (PARTITION_BYTES, SMALL_BYTES, PARTITION_AGE)
        for partition in untyped((await self._database.run(ROTATE, *sizes, keep, room, now)).scalar()):
            await self._database.run_committed(EMPTY, partition)
            alive()
        if keep:
            await self._database.run(ANALYZE_GROWN, SMALL_BYTES)
        return int(untyped((await self._database.run(DELETE_SENT, limit, SMALL_BYTES, keep, now)).scalar()))


_topic = operator.attrgetter("topic")


def _topics(rows: Sequence[OutboxRow]) -> Counter[str]:
    return Counter(map(_topic, rows))


def _poll_of(shards: Sequence[OutboxShard], found: Found, moves: Sequence[Move], drawn: int | None) -> Poll:
    """What was found, as a relay sees it. `drawn`: an id up to which all were drawn before."""
    return Poll(
        shards=shards,
        rows=found.rows,
        stuck=frozenset(found.stuck),
        none_stuck=found.none_stuck,
        more=found.more_from is not None,
        cursor=Whole(moves, drawn) if moves else None,
    )


def _poll_of_page(page: Page, shards: Sequence[OutboxShard]) -> Poll:
    """A page as a relay sees it. There may always be more: at its end what was committed meanwhile."""
    rows: Any = page.rows
    return Poll(
        shards=shards,
        rows=list(starmap(outbox_row, rows)),
        stuck=frozenset([columns[0] for columns in rows if columns[9]]),
        more=True,
        cursor=page,
    )


@functools.cache
def _and_park(statement: str, parameters: int, places: int) -> str:
    """A settle that also parks rows, in one statement."""
    following = ", ".join(f"${number}" for number in range(parameters + 1, parameters + places + 1))
    return f"SELECT s.done, posthouse.park({following}) FROM ({statement} AS done) s WHERE s.done IS NOT NULL"

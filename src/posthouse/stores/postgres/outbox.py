"""Outbox: append-only rows, read by relays through leased lanes whose cursors are snapshots."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock, SystemClock
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import Lane, OutboxRow, Poll, Rows, StuckRow, Transaction
from posthouse.stores.postgres.append import appending
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import FENCED, sqlstate_of
from posthouse.stores.postgres.joins import Joined, JoinedAsync, joined
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.stuck import StuckRows, numbers_of, parked_row, parking, row_of
from posthouse.stores.postgres.transaction import BEGUN

LEAF_BYTES, SMALL_BYTES = 16 * 2**20, 2**20
"""A leaf of the first size, indexes included, is left behind by writers, and truncated when all of it was sent. One of the
second size or less is cleared row by row."""
LEAF_AGE = 600.0
"""Seconds after which a leaf that is not small is left behind too."""
TIDY = 0.5
"""Seconds between two moves of cursors that passed nothing: they let old rows go and keep polls short."""

# Lanes for a relay.
LEASE = "SELECT number, epoch FROM posthouse.lease($1, $2, $3) ORDER BY number"

# Give up every lane, and leave the relays.
RELEASE = """
WITH gone AS (DELETE FROM posthouse.member WHERE owner = $1)
UPDATE posthouse.lane SET owner = NULL, until = 0 WHERE owner = $1
"""

# Whether the cursors belong to this server.
AT_HOME = "SELECT posthouse.at_home()"

# What is new in some lanes.
POLL = "SELECT * FROM posthouse.poll($1, $2, $3, $4)"

# The same, each row with the snapshot that it was read in; where nothing is new, the snapshot alone.
POLL_AT = """
SELECT pg_current_snapshot()::text, p.*
FROM (VALUES (1)) one LEFT JOIN LATERAL posthouse.poll($1, $2, $3, $4) p ON true
"""

# Whether lanes are held.
HOLDS = f"SELECT posthouse.holds($2, $3, $4, {NOW})"

# Move cursors and count what was sent.
SETTLE = "SELECT posthouse.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"

# The same, and park rows.
SETTLE_AND_PARK = f"""
SELECT CASE WHEN {SETTLE.removeprefix("SELECT ")}
    THEN posthouse.park($15, $16, $17, $18, $19, $20, $21, $22, $23, $24) ELSE false END
"""

# Let writers go on to an empty leaf; the leaves that may be emptied.
TURN = "SELECT posthouse.turn($1, $2, $3)"

# Empty a leaf if nothing in it is needed.
EMPTY = "SELECT posthouse.empty($1)"

# Delete rows that no lane needs any more, where that is too little for a leaf to be emptied.
SWEEP = "SELECT posthouse.sweep($1, $2)"

# Intents whose window is over.
FORGET = f"""
DELETE FROM posthouse.idempotency WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM posthouse.idempotency i WHERE i.until <= {NOW}
    ORDER BY i.until LIMIT $2 FOR UPDATE SKIP LOCKED))
"""


class Move(msgspec.Struct, frozen=True):
    """Where the cursor of one lane stood when it was read, and where it goes."""

    lane: int
    s1: str
    s2: str | None
    last_id: int | None
    s1_after: str
    s2_after: str | None = None
    last_id_after: int | None = None
    hi_id_after: int | None = None


class PostgresOutbox(StuckRows):
    """The outbox of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None, window: float) -> None:
        super().__init__(database, clock)
        self._window = window
        self._next_lane = 0
        self._tidied = float("-inf")
        self._known = 0

    async def append(self, tx: Transaction, rows: Sequence[OutboxRow]) -> Sequence[str]:
        if isinstance(tx, BEGUN):
            tx.ready()
            tx.appended = True
            place = self._database.place or await self._database.check()
            return await tx.carry_out(appending(rows, place, self.now(), self._window))
        theirs = tx if isinstance(tx, Joined | JoinedAsync) else joined(self._database, tx.connection)
        place = await theirs.checked()
        return await theirs.carry_out(appending(rows, place, self.now(), self._window))

    def append_now(self, theirs: Joined, rows: Sequence[OutboxRow]) -> Sequence[str]:
        """`append` to a synchronous connection, without an event loop."""
        place = theirs.checked_now()
        return theirs.carry_out_now(appending(rows, place, self.now(), self._window))

    async def lease(self, owner: str, seconds: float) -> Sequence[Lane]:
        made = self._database.made
        lanes = [Lane(*_any(row)) for row in await self._database.run(LEASE, owner, seconds, self.now())]
        self._known = made
        return lanes

    async def release(self, owner: str) -> None:
        await self._database.run(RELEASE, owner)

    async def poll(self, lanes: Sequence[Lane], limit: int) -> Poll:
        return self._read(lanes, await self._look(POLL, lanes, limit))

    async def poll_at(self, lanes: Sequence[Lane], limit: int) -> tuple[Poll, Snapshot]:
        """A poll, and the snapshot in which it looked."""
        found: Sequence[Sequence[Any]] = await self._look(POLL_AT, lanes, limit)
        rows = [row[1:] for row in found if row[1] is not None]
        return self._read(lanes, rows), Snapshot.of(found[0][0])

    async def _look(self, statement: str, lanes: Sequence[Lane], limit: int) -> Rows:
        await self._be_at_home()
        time = asyncio.get_running_loop().time()
        tidy = time - self._tidied >= TIDY
        ordered = sorted(lanes, key=lambda lane: (lane.number < self._next_lane, lane.number))
        numbers, epochs = numbers_of(ordered)
        found = await self._database.run(statement, numbers, epochs, limit, tidy)
        if tidy:
            self._tidied = time
        return found

    async def _be_at_home(self) -> None:
        """After a new connection: is it to the server that the lanes were leased on? A restore may have come between."""
        made = self._database.made
        if made == self._known:
            return
        if not (await self._database.run(AT_HOME)).scalar():
            raise StoreUnavailable("the database was restored from a dump: the next lease puts the cursors right")
        self._known = made

    def _read(self, lanes: Sequence[Lane], found: Iterable[Sequence[Any]]) -> Poll:
        marks: list[tuple[int, str]] = []
        rows: list[OutboxRow] = []
        stuck: set[int] = set()
        last: dict[int, int] = {}
        for lane, mark, *columns, flag in found:
            if mark is not None:
                marks.append((lane, mark))
                continue
            rows.append(row := row_of(columns))
            if row.id > last.get(lane, 0):
                last[lane] = row.id
            if flag:
                stuck.add(row.id)
        rows.sort(key=_id)
        moves, more = [], False
        for lane, mark in marks:
            if mark == "more":
                more, self._next_lane = True, lane
                continue
            move = _move(lane, mark, last.get(lane))
            moves.append(move)
            if move.s2_after is not None:
                more, self._next_lane = True, lane + 1
        return Poll(lanes=lanes, rows=rows, stuck=frozenset(stuck), more=more, cursor=tuple(moves) or None)

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        numbers, epochs = numbers_of(poll.lanes)
        moves: Any = poll.cursor
        if moves is None:
            return bool((await self._database.run(HOLDS, self.now(), owner, numbers, epochs)).scalar())
        waiting = [*stuck, *self._unnamed(poll, stuck)]
        parked = {row.row.id for row in waiting}
        sent = Counter(row.topic for row in poll.rows if row.id not in parked)
        return await self.move(owner, poll.lanes, moves, sent, waiting)

    async def move(
        self, owner: str, lanes: Sequence[Lane], moves: Sequence[Move], sent: Counter[str], waiting: Sequence[StuckRow]
    ) -> bool:
        """Move cursors, count what was sent and park what waits, all or nothing. False when the lanes are not held, or
        a cursor stands elsewhere."""
        numbers, epochs = numbers_of(lanes)
        parameters = (
            owner, self.now(), numbers, epochs, [move.lane for move in moves],
            [move.s1 for move in moves], [move.s2 for move in moves], [move.last_id for move in moves],
            [move.s1_after for move in moves], [move.s2_after for move in moves],
            [move.last_id_after for move in moves], [move.hi_id_after for move in moves], list(sent), list(sent.values()),
        )  # fmt: skip
        try:
            if not waiting:
                return bool((await self._database.run(SETTLE, *parameters)).scalar())
            places = parking(waiting, (await self._database.check()).lanes)
            return bool((await self._database.run(SETTLE_AND_PARK, *parameters, *places)).scalar())
        except StoreError as error:
            if sqlstate_of(error.__cause__ or error) == FENCED:
                return False
            raise

    def _unnamed(self, poll: Poll, stuck: Sequence[StuckRow]) -> Iterable[StuckRow]:
        """Rows that the poll flagged and the relay did not name: they are parked too, never passed over."""
        if not poll.stuck:
            return
        named, now = {row.row.id for row in stuck}, self.moment()
        for row in poll.rows:
            if row.id in poll.stuck and row.id not in named:
                yield parked_row(row, now)

    def moment(self) -> float:
        """The time, for a row that is parked: by the clock that was given, or the machine's."""
        return (self._clock or SystemClock()).now()

    async def purge(self, limit: int) -> int:
        await self._database.run(FORGET, self.now(), limit)
        for leaf in _any((await self._database.run(TURN, LEAF_BYTES, SMALL_BYTES, LEAF_AGE)).scalar()):
            await self._database.run_committed(EMPTY, leaf)
        return int(_any((await self._database.run(SWEEP, limit, SMALL_BYTES)).scalar()))


_id = operator.attrgetter("id")


def _move(lane: int, mark: str, last: int | None) -> Move:
    """What a mark of `posthouse.poll` asks for once its rows, up to the id `last`, were dealt with."""
    kind, s1, s2, last_id, hi_id = mark.split("|")
    if kind == "whole":
        return Move(lane, s1, None, None, s2)
    s2_was, last_was = (None, None) if kind == "open" else (s2, int(last_id))
    if kind == "end" or last is None or last == int(hi_id):
        return Move(lane, s1, s2_was, last_was, s2)
    return Move(lane, s1, s2_was, last_was, s1, s2, last, int(hi_id))


def _any(value: Any) -> Any:
    """What the schema guarantees, the type checker cannot know."""
    return value

"""PostgresWalReader: the outbox as a relay reads it from the log; by polls while the log cannot be followed.

The shards' cursors stay the truth, and rows stay in the table until the cursors have passed them. The log only brings them
sooner and without reading tables. So whatever happens to the connection, its slot or the server, polling goes on from the
cursors: some events come twice, none is missing.

From polls to the log. The stream brings every transaction whose commit comes after the slot was made. A commit is in the
log a moment before it is visible, and long before where it waits for a standby, so at the beginning a transaction may be
in neither. Therefore a transaction id is drawn once the stream runs: when a poll has dealt with everything in a snapshot
in which all older transactions have ended, whatever that snapshot does not show is in the stream. Until then polls go on,
and what they have dealt with is dropped from the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence

import msgspec

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import OutboxShard, Poll, RelaySource, StuckRow, parked
from posthouse.stores.postgres.cursor import Move, Whole
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.outbox import PostgresOutbox
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.stuck import run_of
from posthouse.stores.postgres.wal.cursor import Guard, marked
from posthouse.stores.postgres.wal.following import NUDGE, STUCK_PAUSE, Following, line, line_of
from posthouse.stores.postgres.wal.pgoutput import Inserted
from posthouse.stores.postgres.wal.receiving import Receiving
from posthouse.stores.postgres.wal.stream import Message

log = logging.getLogger("posthouse.relay")

LAST_MOVE = 1.0
"""Seconds, when a relay stops, to bring the cursors up to what it has published."""

# A transaction id that is higher than that of every transaction which has written something by now.
DRAW = "SELECT pg_current_xact_id()::text::bigint"

# Write a little to the log, and write it out.
WRITE_OUT = "SELECT pg_logical_emit_message(true, 'posthouse', '')"

# Say where our rows come from, for people.
NOTE = "UPDATE posthouse.member SET reads = $2 WHERE owner = $1"

# The keys that wait.
STUCK = "SELECT s.id, s.topic, s.tenant, s.key FROM posthouse.stuck s WHERE s.shard = ANY ($1)"


class Handed(msgspec.Struct, frozen=True):
    """The cursor of a poll that came from the log: what was handed out, and when."""

    following: Following
    rows: Sequence[Inserted]


class PostgresWalReader:
    """Implements `posthouse.store.WalReader`. `wal_keep`: bytes of log that the slot may hold back."""

    def __init__(
        self,
        database: Database,
        outbox: PostgresOutbox,
        changed: Callable[[int, float], Awaitable[int]],
        wal_keep: int,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._changed = changed
        self._receiving = Receiving(database, wal_keep, self)
        self._shards: Sequence[OutboxShard] = ()
        self._numbers: frozenset[int] = frozenset()
        self._run = ""
        self._polled: Snapshot | None = None
        self._news = asyncio.Event()
        self._now = Following()
        self._noted = ""
        self.why = "nothing was read yet"

    @property
    def mode(self) -> RelaySource:
        return "poll" if self._now.base is None else "wal"

    async def lease(self, owner: str, seconds: float) -> Sequence[OutboxShard]:
        self._hold(await self._outbox.lease(owner, seconds))
        self._receiving.start()
        await self._note(owner)
        return self._shards

    async def release(self, owner: str) -> None:
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_MOVE):
                while self._now.dealt and not self._now.unsent:
                    await self._move_cursors(owner)
                    await asyncio.sleep(0.01)
        await self._outbox.release(owner)

    async def poll(self, shards: Sequence[OutboxShard], limit: int) -> Poll:
        now = self._now
        if now.base is not None:
            return self._from_log(shards, limit)
        if now.guard is not None and now.threshold is None:
            now.threshold = int(str((await self._database.run(DRAW)).scalar()))
        poll, looked_at = await self._outbox.poll_at(shards, limit)
        self._polled = Snapshot.of(looked_at)
        if poll.cursor is None:
            await self._passed(poll)
        return poll

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        if isinstance(poll.cursor, Handed):
            return await self._settle_log(owner, poll, poll.cursor, stuck)
        done = await self._outbox.settle(owner, poll, stuck)
        if done:
            await self._passed(poll)
        return done

    async def stuck_due(self, shards: Sequence[OutboxShard], limit: int) -> Sequence[StuckRow]:
        if self._now.base is not None and not self._now.looks_for_stuck(_time()):
            return []
        return await self._outbox.stuck_due(shards, limit)

    async def settle_stuck(
        self, owner: str, shards: Sequence[OutboxShard], sent: Sequence[int], failed: Sequence[StuckRow]
    ) -> bool:
        done = await self._outbox.settle_stuck(owner, shards, sent, failed)
        if done and sent:
            now = self._now
            found = await self._stuck_lines()
            now.stuck = found | {line_of(one.row) for one, _ in now.dealt.parked}
            now.looked_for_stuck_at = float("-inf")  # those behind them are due
        return done

    async def changed(self, seen: int, seconds: float) -> int:
        if self._now.base is None:
            # The way to the log opens when others end their transactions, of which nothing is heard.
            return await self._changed(seen, min(seconds, STUCK_PAUSE) if self._now.guard is not None else seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self._now.until_due(_time()))):
                await self._news.wait()
        self._news.clear()
        return seen

    async def aclose(self) -> None:
        await self._receiving.stop()
        self._shards, self._numbers, self._now, self._noted = (), frozenset(), Following(), ""

    # What the stream tells.

    def begin(self, guard: Guard) -> None:
        """The stream is open; what it brings is kept from now on."""
        self._now = Following(guard)
        self.why = "the log is open, and polls catch up with it"
        self._news.set()

    def take(self, messages: Sequence[Message]) -> None:
        """What the stream has brought."""
        now = self._now
        if now.unsent.take(messages, self._numbers, now.base):
            now.came_at = _time()
            self._news.set()
        elif now.reached:
            self._news.set()

    @property
    def accepted(self) -> int:
        """The place up to which everything was dealt with."""
        return self._now.unsent.accepted

    @property
    def full(self) -> bool:
        """Whether the stream has to wait."""
        return self._now.unsent.full

    def follows(self, guard: Guard) -> bool:
        """Whether the stream of this guard is still of use."""
        return self._now.guard is guard

    def lose(self, why: str) -> None:
        """The log cannot be followed any longer: polls go on from the cursors."""
        if self._now.guard is not None or why != self.why:
            log.warning("the relay polls, because the log cannot be followed: %s", why)
        self.why = why
        self._receiving.wait_for_polls()
        self._now = Following()
        self._news.set()

    async def _note(self, owner: str) -> None:
        reads = "the log" if self.mode == "wal" else f"polls, because {self.why}"
        if reads != self._noted:
            await self._database.run(NOTE, owner, reads)
            self._noted = reads

    # Which shards are ours.

    def _hold(self, shards: Sequence[OutboxShard]) -> None:
        """Shards that are new begin with polls: what the stream has brought of them so far was thrown away."""
        new, now = set(shards) - set(self._shards), self._now
        self._shards, self._numbers = shards, frozenset(shard.number for shard in shards)
        now.unsent.drop_others(self._numbers)
        now.dealt.forget_others(self._numbers)
        now.mark = None
        if new and run_of(shards) != self._run:
            self._run = run_of(shards)
            if now.guard is not None:
                self.lose("the server has begun another run")
        elif new:
            self._poll_again("shards were taken over")

    def _poll_again(self, why: str) -> None:
        """Back to the cursors, while the stream goes on."""
        if self._now.base is not None:
            log.info("the relay polls: %s", why)
            self.why = why
        self._now = Following(self._now.guard, self._now.unsent)

    # From polls to the log.

    async def _passed(self, poll: Poll) -> None:
        """A poll was dealt with: it may be the one after which the log takes over."""
        snapshot, now = self._polled, self._now
        if snapshot is None or poll.more or any(move.s1_after != snapshot.text for move in _moves(poll)):
            return
        now.unsent.drop_seen(snapshot)
        self._receiving.polls_caught_up()
        if now.guard is None or now.threshold is None or list(poll.shards) != list(self._shards):
            return
        if snapshot.first_open <= now.threshold:
            self.why = f"transaction {snapshot.first_open}, which was open when the log was opened, has not ended"
            return
        stuck = await self._stuck_lines()
        if now is self._now:
            now.take_over(snapshot, stuck, _time())
            now.unsent.drop_seen(snapshot)
            self.why = ""
            log.info("the relay follows the log of the database")

    async def _stuck_lines(self) -> set[Hashable]:
        return {line(*columns) for columns in await self._database.run(STUCK, sorted(self._numbers))}

    # From the log to the broker.

    def _from_log(self, shards: Sequence[OutboxShard], limit: int) -> Poll:
        now = self._now
        found = now.unsent.first(limit)
        if not found and now.until_due(_time()) > 0:
            return Poll(shards=shards, rows=())
        rows = [one.row for one in found]
        stuck = frozenset(row.id for row in rows if line_of(row) in now.stuck) if now.stuck else frozenset[int]()
        return Poll(shards=shards, rows=rows, stuck=stuck, more=len(now.unsent) > len(rows), cursor=Handed(now, found))

    async def _settle_log(self, owner: str, poll: Poll, handed: Handed, stuck: Sequence[StuckRow]) -> bool:
        now = self._now
        if handed.following is not now:
            return True  # the stream is gone: polls go on from the cursors, and repeat what was just published
        named = {one.row.id: one for one in stuck}
        for one in handed.rows:
            waiting = named.get(one.row.id)
            if waiting is None and one.row.id not in poll.stuck:
                now.dealt.send(one)
                continue
            now.dealt.park(one, waiting or parked(one.row))
            now.stuck.add(line_of(one.row))
        now.unsent.drop_first(len(handed.rows))
        self._receiving.made_room()
        return await self._move_cursors(owner) if now.until_due(_time()) <= 0 else True

    # The cursors follow.

    async def _move_cursors(self, owner: str) -> bool:
        """One step towards cursors that have passed what was dealt with. False when the shards are not ours any more."""
        now = self._now
        if now.guard is None or now.base is None:
            return True
        try:
            await self._mark_or_nudge(now, now.guard)
        except StoreUnavailable as error:
            self.lose(str(error))
            return True
        if now is not self._now or now.mark is None:
            return True
        if len(now.mark.cursors) != len(self._shards):
            self._poll_again("shards were lost")
            return False
        return await self._store(owner) if now.reached else True

    async def _mark_or_nudge(self, now: Following, guard: Guard) -> None:
        time = _time()
        if now.mark is None:
            now.mark = await marked(self._database, guard, self._shards, time)
        elif not now.reached and time - now.mark.taken_at >= NUDGE:
            now.mark = msgspec.structs.replace(now.mark, taken_at=time)
            await self._database.run(WRITE_OUT)

    async def _store(self, owner: str) -> bool:
        now, mark, time = self._now, self._now.mark, _time()
        if mark is None:
            return True
        sent, waiting, touched = now.dealt.seen(mark.snapshot)
        everything = now.moves_all(time)
        numbers = sorted(self._numbers if everything else touched)
        moves = [Move(shard, mark.cursors[shard], mark.snapshot.text) for shard in numbers]
        now.mark, now.moved_at = None, time
        if not moves:
            return True
        try:
            done = await self._outbox.move(owner, self._shards, Whole(moves, None), sent, waiting)
        except StoreError:
            self._poll_again("nobody knows whether the cursors have moved")  # polls begin where they stand
            raise
        if not done:
            self._poll_again("shards were lost")
        now.moved(mark.snapshot, everything, time)
        return done


def _moves(poll: Poll) -> Sequence[Move]:
    return poll.cursor.moves if isinstance(poll.cursor, Whole) else ()


def _time() -> float:
    return asyncio.get_running_loop().time()

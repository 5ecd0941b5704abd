"""Cursor: how the shards' cursors, which are snapshots, follow what was read from the log, which has places.

A transaction that is visible in a snapshot has its commit in the log before any place that is read after the snapshot was
taken. So: take a snapshot, then the place up to which the log is written. When everything up to that place was dealt
with, so was everything visible in the snapshot. The same statement looks whether it is still our slot on this very
server, and the same publication, that bring the rows: else nothing follows from anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from posthouse.errors import StoreUnavailable
from posthouse.store import OutboxShard, StuckRow
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.stuck import held_as
from posthouse.stores.postgres.wal.pgoutput import Inserted
from posthouse.stores.postgres.wal.proving import PUBLISHED

# The slot, what it holds back, and the publication.
FACTS = f"""
SELECT s.wal_status, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.restart_lsn)::bigint, ({PUBLISHED})
FROM pg_replication_slots s WHERE s.slot_name = $1 AND s.active
"""

# A snapshot, then a place in the log, and where the cursors of our shards stand; none in another run of the server.
MARK = f"""
SELECT pg_current_snapshot()::text, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, f.*,
    (SELECT array_agg(l.number ORDER BY l.number) FROM posthouse.shard l
        JOIN unnest($2::smallint[], $3::bigint[]) AS w (number, epoch) ON l.number = w.number AND l.epoch = w.epoch
        WHERE l.backlog IS NULL AND posthouse.incarnation() = $4),
    (SELECT array_agg(l.s1::text ORDER BY l.number) FROM posthouse.shard l
        JOIN unnest($2::smallint[], $3::bigint[]) AS w (number, epoch) ON l.number = w.number AND l.epoch = w.epoch
        WHERE l.backlog IS NULL AND posthouse.incarnation() = $4)
FROM ({FACTS}) f
"""


class Mark(msgspec.Struct, frozen=True):
    """When everything up to `end` was dealt with, so was all that `snapshot` shows. `cursors`: where they stand now."""

    snapshot: Snapshot
    end: int
    cursors: Mapping[int, str]
    taken_at: float


class Guard(msgspec.Struct, frozen=True):
    """What must stay as it was for the log to be trusted: our slot, the publication, and how much the slot may hold back."""

    slot: str
    publication: str
    most_bytes: int

    def check(self, facts: Sequence[object]) -> None:
        """Raises StoreUnavailable when the log is not to be followed any longer."""
        if not facts:
            raise StoreUnavailable("the server has dropped the slot, or this is another server")
        status, retained, publication = facts
        if publication != self.publication:
            raise StoreUnavailable("the publication was changed, so that rows may be missing from the log")
        if status in ("unreserved", "lost"):
            raise StoreUnavailable(f"the server gives up the slot (wal_status {status}, see max_slot_wal_keep_size)")
        if int(str(retained)) > self.most_bytes:
            raise StoreUnavailable(
                f"the slot holds back {int(str(retained)) >> 20:,} MiB of log, more than wal_keep allows: the broker is too slow, "
                "or away"
            )


async def inspect(database: Database, guard: Guard) -> None:
    """Look after the slot."""
    found = await database.run(FACTS, guard.slot)
    guard.check(found[0] if found else ())


async def marked(database: Database, guard: Guard, shards: Sequence[OutboxShard], now: float) -> Mark:
    """Take a snapshot and the place in the log that belongs to it."""
    found = await database.run(MARK, guard.slot, *held_as(shards))
    if not found:
        guard.check(())
    snapshot, end, status, retained, publication, numbers, cursors = found[0]
    guard.check((status, retained, publication))
    standing = {int(str(n)): str(s1) for n, s1 in zip(_list(numbers), _list(cursors), strict=True)}
    return Mark(Snapshot.of(str(snapshot)), int(str(end)), standing, now)


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []


class Dealt:
    """What was dealt with since the cursors moved last."""

    def __init__(self) -> None:
        self._sent: Counter[tuple[int, int, str]] = Counter()
        self.parked: list[tuple[Inserted, StuckRow]] = []
        self.rows = 0

    def __bool__(self) -> bool:
        return bool(self._sent or self.parked)

    def send(self, one: Inserted) -> None:
        """The broker has it."""
        self._sent[one.xid, one.shard, one.row.topic] += 1
        self.rows += 1

    def park(self, one: Inserted, stuck: StuckRow) -> None:
        """It waits for another try."""
        self.parked.append((one, stuck))

    def seen(self, snapshot: Snapshot) -> tuple[Counter[str], list[StuckRow], set[int]]:
        """What the snapshot shows: how many of each topic were sent, what is to be parked, and the shards of both."""
        sent: Counter[str] = Counter()
        shards = {one.shard for one, _ in self.parked if snapshot.sees(one.xid)}
        for (xid, shard, topic), number in self._sent.items():
            if snapshot.sees(xid):
                sent[topic] += number
                shards.add(shard)
        return sent, [stuck for one, stuck in self.parked if snapshot.sees(one.xid)], shards

    def forget_seen(self, snapshot: Snapshot) -> None:
        """The cursors have passed it."""
        self._keep(lambda xid, _: not snapshot.sees(xid))

    def forget_others(self, shards: Container[int]) -> None:
        """Other relays see to the other shards."""
        self._keep(lambda _, shard: shard in shards)

    def _keep(self, wanted: Callable[[int, int], bool]) -> None:
        self._sent = Counter({key: number for key, number in self._sent.items() if wanted(key[0], key[1])})
        self.parked = [(one, stuck) for one, stuck in self.parked if wanted(one.xid, one.shard)]
        self.rows = self._sent.total()

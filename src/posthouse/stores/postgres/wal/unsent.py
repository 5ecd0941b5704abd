"""Unsent: what came from the log and was not dealt with yet, in order, and how far everything was. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice

from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.wal.pgoutput import Inserted
from posthouse.stores.postgres.wal.stream import Message

MOST_ROWS, MOST_BYTES = 5_000, 32 * 1024 * 1024
"""From here on the log waits on the server."""


class Unsent:
    """Rows, and between them places in the log. `accepted` is the place up to which nothing is left."""

    def __init__(self) -> None:
        self._line: deque[Inserted | int] = deque()
        self._rows = 0
        self._bytes = 0
        self.accepted = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def full(self) -> bool:
        """Take nothing more before some of it is gone."""
        return self._rows >= MOST_ROWS or self._bytes >= MOST_BYTES

    def take(self, messages: Iterable[Message], shards: Container[int], base: Snapshot | None) -> int:
        """Add what belongs to these shards and is not visible in `base`; how many rows that were."""
        before = self._rows
        for message in messages:
            if not isinstance(message, Inserted):
                self._reach(message.end)
            elif message.shard in shards and not (base is not None and base.sees(message.xid)):
                self._line.append(message)
                self._rows += 1
                self._bytes += len(message.row.body)
        return self._rows - before

    def first(self, limit: int) -> Sequence[Inserted]:
        """The next rows, at most so many; they stay until they are dropped."""
        return list(islice((one for one in self._line if not isinstance(one, int)), limit))

    def drop_first(self, number: int) -> None:
        """The first rows were dealt with."""
        while number:
            number -= self._pop()
        self._pass()

    def drop_seen(self, snapshot: Snapshot) -> None:
        """Everything visible in a snapshot was dealt with."""
        self._keep(lambda one: not snapshot.sees(one.xid))

    def drop_others(self, shards: Container[int]) -> None:
        """Everything but these shards is somebody else's now."""
        self._keep(lambda one: one.shard in shards)

    def clear(self) -> None:
        """Begin anew, as on a new connection."""
        self._line.clear()
        self._rows = self._bytes = self.accepted = 0

    def _reach(self, end: int) -> None:
        if not self._line:
            self.accepted = max(self.accepted, end)
        elif isinstance(last := self._line[-1], int):
            self._line[-1] = max(last, end)
        else:
            self._line.append(end)

    def _keep(self, wanted: Callable[[Inserted], bool]) -> None:
        kept = [one for one in self._line if isinstance(one, int) or wanted(one)]
        rows = [one for one in kept if not isinstance(one, int)]
        self._line = deque(kept)
        self._rows, self._bytes = len(rows), sum(len(one.row.body) for one in rows)
        self._pass()

    def _pop(self) -> int:
        """Take the first entry away: 1 when it was a row."""
        one = self._line.popleft()
        if isinstance(one, int):
            self.accepted = max(self.accepted, one)
            return 0
        self._rows -= 1
        self._bytes -= len(one.row.body)
        return 1

    def _pass(self) -> None:
        """Pass the places that now stand first."""
        while self._line and isinstance(self._line[0], int):
            self._pop()

"""Moving: where the cursors of shards stood when they were read, and where they go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Move(msgspec.Struct, frozen=True):
    """Where the cursor of one shard stood when it was read, and where it goes."""

    shard: int
    s1: str
    s1_after: str


class Drawn(msgspec.Struct, frozen=True):
    """An id up to which all are drawn, as one run of the server has said: another may give ids below it again."""

    run: str
    id: int


class Whole(msgspec.Struct, frozen=True):
    """All that is new for some shards was read. `floor` as in the shards; None leaves theirs."""

    moves: Sequence[Move]
    floor: int | None

    @property
    def stand_together(self) -> bool:
        """Whether all shards stand at one place, and go to one."""
        return len({(move.s1, move.s1_after) for move in self.moves}) == 1

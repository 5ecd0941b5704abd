"""Glance: what is new in some shards, where that is little, as it is whenever a relay keeps up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from posthouse.store import OutboxRow
from posthouse.stores.postgres.cursor import Move
from posthouse.stores.postgres.stuck import row_of

FEW = 200
"""More rows than that are searched for: then a look at each shard costs little beside them."""

# What is new in some shards, if it is little.
POLL_FAST = "SELECT * FROM posthouse.poll_fast($1::text::smallint[], $2::text::bigint[], $3, $4)"


class FastPoll(msgspec.Struct):
    """All that is new: rows, those of them that are not to be sent, and the moves of the shards that they are in. `still`
    are the moves of shards that have nothing new. `drawn` is an id up to which all are drawn now."""

    drawn: int = 0
    none_stuck: bool = True
    rows: list[OutboxRow] = []
    stuck: set[int] = set()
    moves: list[Move] = []
    still: list[Move] = []


def read_fast(found: Iterable[Sequence[Any]], few: int) -> FastPoll | None:
    """What `posthouse.poll_fast` says; None when it is not all: there are more than `few` rows, or shards that are behind."""
    seen = FastPoll()
    rows = seen.rows
    together: list[Move] = []
    before = 0
    for mark, _, *columns, flag in found:
        if mark is None:
            rows.append(row_of(*columns))
            if flag:
                seen.stuck.add(columns[0])
            continue
        kind, _, rest = mark.partition("|")
        if kind == "drawn":
            seen.drawn = int(rest)
        elif kind == "stuck":
            seen.none_stuck = False
        elif kind == "together":  # its rows follow
            (seen.moves if len(rows) > before else seen.still).extend(together)
            together, before = _moves(rest), len(rows)
        else:
            return None
    (seen.moves if len(rows) > before else seen.still).extend(together)
    return None if len(rows) > few else seen


def _moves(mark: str) -> list[Move]:
    shards, s1, s1_after = mark.split("|")
    return [Move(int(shard), s1, s1_after) for shard in shards.split(",")]

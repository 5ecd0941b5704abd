"""Polling: what is new in some shards, as `posthouse.poll` and `posthouse.poll_fast` tell it, and where their cursors go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from posthouse.store import OutboxRow
from posthouse.stores.postgres.backlog import Backlog
from posthouse.stores.postgres.cursor import Move
from posthouse.stores.rows import outbox_row

FEW = 200
"""More rows than that are read shard by shard: then a look at each shard costs little beside them."""

# A mark, which most rows have not, and a row.
COLUMNS = """(p.mark).kind, (p.mark).shards, (p.mark).s1::text[], (p.mark).s2::text, (p.mark).number, (p.mark).last_id,
    (p.mark).hi_id, (p.mark).floor, p.id, p.topic, p.tenant, p.key, p.sequence, p.lineage, p.event_id, p.headers, p.body, p.stuck"""

# What is new in some shards.
POLL = f"SELECT {COLUMNS} FROM posthouse.poll($1, $2, $3, $4, $5, $6, $7) p"

# The same, if it is little, as it is whenever a relay keeps up.
POLL_FAST = f"SELECT {COLUMNS} FROM posthouse.poll_fast($1::text::smallint[], $2::text::bigint[], $3, $4) p"


class Found(msgspec.Struct):
    """What a poll found: rows, those of them that are not to be sent, and the moves of the shards that they are in. `still`
    are the moves of shards that have nothing new."""

    drawn: int = 0
    """An id up to which all are drawn now."""
    snapshot: str = ""
    """In which it looked."""
    none_stuck: bool = False
    rows: list[OutboxRow] = []
    stuck: set[int] = set()
    moves: list[Move] = []
    still: list[Move] = []
    more_from: int | None = None
    """The shard from which on there is more than was asked for."""
    behind: bool = False
    """Some shards have a backlog, and nothing was looked at."""
    backlog: Backlog | None = None
    """What to read instead of rows."""


def found_in(records: Iterable[Sequence[Any]]) -> Found:
    """What the columns of a poll say."""
    found = Found()
    rows = found.rows
    moves: list[Move] = []
    before = 0
    for record in records:
        kind = record[0]
        if kind is None:
            rows.append(outbox_row(*record[8:17]))
            if record[17]:
                found.stuck.add(record[8])
            continue
        shards, s1, s2, number, last_id, hi_id, floor = record[1:8]
        if kind == "drawn":
            found.drawn, found.snapshot, found.none_stuck = floor, s2, not record[17]
        elif kind == "whole":  # its rows follow
            (found.moves if len(rows) > before else found.still).extend(moves)
            moves, before = [Move(shard, s1[0], s2) for shard in shards], len(rows)
        elif kind == "more":
            found.more_from = shards[0]
        elif kind == "behind":
            found.behind = True
        else:
            found.backlog = Backlog(
                number=number, s2=s2, last_id=last_id, hi_id=hi_id, floor=floor, shards=tuple(shards), s1=tuple(s1)
            )
    (found.moves if len(rows) > before else found.still).extend(moves)
    rows.sort(key=_id)
    return found


def _id(row: OutboxRow) -> int:
    return row.id

"""Pgoutput: what the server's decoder says, version 1 of its protocol. Bytes in, values out; no I/O.

Only what a publication of inserts sends is understood. The server sends a transaction when it has committed, whole, and
transactions in the order of their commits, so that what is read here is never taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

import msgspec

from posthouse.errors import StoreError
from posthouse.store import OutboxRow
from posthouse.stores.rows import outbox_row

COLUMNS = ("id", "topic", "tenant", "key", "sequence", "lineage", "event_id", "headers", "body")
"""What a row is made of, in the order of `row_of`."""
PLACE = ("shard", "xid")
"""What says whose it is, and which transaction it came with."""

KEPT = -1
"""The slot of stuck rows whose partition was emptied: they came before."""

INTEGERS = {2: Struct("!h"), 4: Struct("!i"), 8: Struct("!q")}
LENGTH, LONG = Struct("!I"), Struct("!Q")
COMMIT = Struct("!BQQ")

Value = int | str | bytes | None


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """A row that was committed: its shard, its transaction, and itself."""

    shard: int
    xid: int
    row: OutboxRow


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Everything committed up to this place in the log was sent."""

    end: int


class Decoder:
    """Turns messages into rows and commits; the other kinds of message say nothing that is needed."""

    def __init__(self) -> None:
        self._layouts: dict[int, Sequence[int]] = {}
        """For each relation, where COLUMNS and PLACE stand in its rows."""
        self._slots: dict[int, int] = {}
        """For each relation that has partitions, where the partition of a row stands."""

    def read(self, message: bytes) -> Inserted | Committed | None:
        """What one message says; None when it is nothing for us."""
        match message[:1]:
            case b"I":
                return self._inserted(message)
            case b"C":
                return Committed(COMMIT.unpack_from(message, 1)[2])
            case b"R":
                self._learn(message)
        return None

    def _learn(self, message: bytes) -> None:
        """A relation is described before its first row, and again after it was changed."""
        (relation,) = LENGTH.unpack_from(message, 1)
        at = message.index(b"\0", 5) + 1  # its schema
        at = message.index(b"\0", at) + 2  # its name, and one byte of replica identity
        number = int.from_bytes(message[at : at + 2])
        at += 2
        names: list[str] = []
        for _ in range(number):
            end = message.index(b"\0", at + 1)
            names.append(message[at + 1 : end].decode())
            at = end + 9  # type and modifier
        missing = [name for name in (*COLUMNS, *PLACE) if name not in names]
        if missing:
            raise StoreError(f"the log sends rows without {', '.join(missing)}: the publication must cover all columns")
        self._layouts[relation] = [names.index(name) for name in (*COLUMNS, *PLACE)]
        if "slot" in names:
            self._slots[relation] = names.index("slot")

    def _inserted(self, message: bytes) -> Inserted | None:
        """The row; None for a stuck one that only moved to the partition of those that are kept."""
        relation = LENGTH.unpack_from(message, 1)[0]
        layout = self._layouts.get(relation)
        if layout is None or message[5:6] != b"N":
            raise StoreError(f"the log sent a row of relation {relation} that it had not described")
        values = _tuple(message, 6)
        if relation in self._slots and _integer(*values[self._slots[relation]]) == KEPT:
            return None
        found = [read(*values[place]) for place, read in zip(layout, READERS, strict=True)]
        shard, xid = found[9:]
        if not isinstance(shard, int) or not isinstance(xid, int):
            raise StoreError("the log sent a row without its shard or its transaction")
        return Inserted(shard, xid, outbox_row(*found[:9]))


def _tuple(message: bytes, at: int) -> list[tuple[bytes, bytes]]:
    """The columns of a row: how each was written, and what."""
    number = int.from_bytes(message[at : at + 2])
    at += 2
    found: list[tuple[bytes, bytes]] = []
    for _ in range(number):
        kind = message[at : at + 1]
        at += 1
        if kind in (b"n", b"u"):
            found.append((kind, b""))
            continue
        (length,) = LENGTH.unpack_from(message, at)
        found.append((kind, message[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def _integer(kind: bytes, value: bytes) -> Value:
    if kind == b"b":
        number: int = INTEGERS[len(value)].unpack(value)[0]
        return number
    return None if kind == b"n" else int(value)


def _text(kind: bytes, value: bytes) -> Value:
    return None if kind == b"n" else value.decode()


def _bytes(kind: bytes, value: bytes) -> Value:
    """A body. As text it comes in hexadecimal behind `\\x`."""
    if kind == b"n":
        return None
    return value if kind == b"b" else bytes.fromhex(value[2:].decode())


READERS: Sequence[Callable[[bytes, bytes], Value]] = (
    _integer, _text, _text, _text, _integer, _integer, _text, _text, _bytes, _integer, _integer,
)  # fmt: skip

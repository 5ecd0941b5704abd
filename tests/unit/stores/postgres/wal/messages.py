"""Messages of pgoutput, written by hand from the description of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from posthouse.store import OutboxRow
from posthouse.stores.postgres.wal.pgoutput import Inserted

COLUMNS = (
    "id", "xid", "shard", "topic", "tenant", "key", "sequence", "lineage", "event_id", "headers", "body", "partition",
)  # fmt: skip
"""In the order of the table, with a column more than we know."""


def relation(number: int = 7, names: Sequence[str] = COLUMNS) -> bytes:
    """R: a relation and its columns."""
    columns = b"".join(b"\0" + name.encode() + b"\0" + struct.pack("!Ii", 25, -1) for name in names)
    return b"R" + struct.pack("!I", number) + b"posthouse\0outbox\0d" + struct.pack("!H", len(names)) + columns


def insert(values: Sequence[tuple[bytes, bytes]], number: int = 7) -> bytes:
    """I: a new row."""
    return b"I" + struct.pack("!I", number) + b"N" + struct.pack("!H", len(values)) + b"".join(map(column, values))


def column(value: tuple[bytes, bytes]) -> bytes:
    kind, content = value
    return kind if kind == b"n" else kind + struct.pack("!I", len(content)) + content


def begin(xid: int) -> bytes:
    """B: what follows belongs to one transaction."""
    return b"B" + struct.pack("!QqI", 0x50, 0, xid)


def commit(end: int) -> bytes:
    """C: the end of a transaction."""
    return b"C" + struct.pack("!BQQq", 0, end - 8, end, 0)


def row_as_text(**changed: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """A row as servers before 14 send it."""
    values = {
        "id": (b"t", b"12"),
        "xid": (b"t", b"4294967299"),
        "shard": (b"t", b"3"),
        "topic": (b"t", b"shop.orders"),
        "tenant": (b"t", "Zürich".encode()),
        "key": (b"t", b"o1"),
        "sequence": (b"t", b"5"),
        "lineage": (b"t", b"1"),
        "event_id": (b"t", b"e1"),
        "headers": (b"t", b'{"a":"b"}'),
        "body": (b"t", rb"\x00ff7b"),
        "partition": (b"t", b"2"),
    }
    return [{**values, **changed}[name] for name in COLUMNS]


def row_as_bytes() -> list[tuple[bytes, bytes]]:
    """The same row in binary."""
    binary = {
        "id": struct.pack("!q", 12),
        "xid": struct.pack("!q", 4294967299),
        "shard": struct.pack("!h", 3),
        "sequence": struct.pack("!q", 5),
        "lineage": struct.pack("!i", 1),
        "body": b"\x00\xff\x7b",
        "partition": struct.pack("!h", 2),
    }
    text = dict(zip(COLUMNS, row_as_text(), strict=True))
    return [(b"b", binary.get(name, text[name][1])) for name in COLUMNS]


def inserted(number: int, *, shard: int = 0, xid: int = 1, key: str = "k", body: bytes = b"{}") -> Inserted:
    """A row as the decoder gives it."""
    return Inserted(shard, xid, OutboxRow(id=number, topic="t", tenant="t1", event_id=f"e{number}", key=key, body=body))

"""What the server's decoder says, byte by byte."""

from __future__ import annotations

import pytest

from posthouse.errors import StoreError
from posthouse.store import OutboxRow
from posthouse.stores.postgres.wal.pgoutput import Committed, Decoder, Inserted
from tests.unit.stores.postgres.wal.messages import (
    COLUMNS,
    begin,
    commit,
    insert,
    relation,
    row_as_bytes,
    row_as_text,
)

ROW = OutboxRow(
    id=12, topic="shop.orders", tenant="Zürich", key="o1", sequence=5, lineage=1, event_id="e1", headers={"a": "b"},
    body=b"\x00\xff{",
)  # fmt: skip


@pytest.mark.parametrize("values", [row_as_text(), row_as_bytes()], ids=["text", "binary"])
def test_a_row_comes_out_as_it_went_in(values: list[tuple[bytes, bytes]]) -> None:
    decoder = Decoder()
    assert decoder.read(relation()) is None
    assert decoder.read(insert(values)) == Inserted(3, 4294967299, ROW)


def test_nothing_is_nothing_and_empty_is_empty() -> None:
    decoder = Decoder()
    decoder.read(relation())
    none = (b"n", b"")
    found = decoder.read(insert(row_as_text(key=none, sequence=none, headers=none, body=(b"t", rb"\x"))))
    assert isinstance(found, Inserted)
    assert (found.row.key, found.row.sequence, found.row.numbered) == (None, None, False)
    assert (found.row.headers, found.row.body) == ({}, b"")


def test_a_commit_says_how_far_the_log_was_sent() -> None:
    assert Decoder().read(commit(0x1_0000_0020)) == Committed(0x1_0000_0020)


@pytest.mark.parametrize("message", [begin(7), b"Y....", b"O....", b"M....", b"T....", b""])
def test_what_is_no_row_and_no_commit_says_nothing(message: bytes) -> None:
    assert Decoder().read(message) is None


def test_columns_may_change_their_places() -> None:
    decoder = Decoder()
    decoder.read(relation())
    turned = tuple(reversed(COLUMNS))
    decoder.read(relation(names=turned))
    assert decoder.read(insert(row_as_text()[::-1])) == Inserted(3, 4294967299, ROW)


@pytest.mark.parametrize("slot", [(b"t", b"-1"), (b"b", b"\xff\xff")], ids=["text", "binary"])
def test_a_stuck_row_that_moved_to_the_leaf_of_kept_ones_is_no_news(slot: tuple[bytes, bytes]) -> None:
    decoder = Decoder()
    decoder.read(relation(names=(*COLUMNS, "slot")))
    assert decoder.read(insert([*row_as_text(), (b"t", b"3")])) == Inserted(3, 4294967299, ROW)
    assert decoder.read(insert([*row_as_text(), slot])) is None


def test_relations_are_told_apart() -> None:
    decoder = Decoder()
    decoder.read(relation(7))
    decoder.read(relation(8, tuple(reversed(COLUMNS))))
    assert decoder.read(insert(row_as_text(), 7)) == decoder.read(insert(row_as_text()[::-1], 8))


def test_a_relation_without_a_column_that_is_needed_is_refused() -> None:
    with pytest.raises(StoreError, match="without body"):
        Decoder().read(relation(names=[name for name in COLUMNS if name != "body"]))


def test_a_row_that_was_not_described_is_refused() -> None:
    with pytest.raises(StoreError, match="relation 9"):
        Decoder().read(insert(row_as_text(), 9))

"""Rows that came from the log and wait for the broker."""

from __future__ import annotations

from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.wal import unsent as module
from posthouse.stores.postgres.wal.pgoutput import Committed
from posthouse.stores.postgres.wal.stream import Reached
from posthouse.stores.postgres.wal.unsent import Unsent
from tests.unit.stores.postgres.wal.messages import inserted

SHARDS = frozenset({0, 1})


def ids(unsent: Unsent) -> list[int]:
    return [one.row.id for one in unsent.first(100)]


def test_a_place_is_accepted_when_all_before_it_is_gone() -> None:
    unsent = Unsent()
    unsent.take([inserted(1), inserted(2), Committed(20), inserted(3), Committed(30)], SHARDS, None)
    assert (ids(unsent), unsent.accepted) == ([1, 2, 3], 0)
    unsent.drop_first(1)
    assert unsent.accepted == 0
    unsent.drop_first(1)
    assert (ids(unsent), unsent.accepted) == ([3], 20)
    unsent.drop_first(1)
    assert (len(unsent), unsent.accepted) == (0, 30)


def test_rows_may_be_handed_out_again_until_they_are_dropped() -> None:
    unsent = Unsent()
    unsent.take([inserted(1), Committed(10), inserted(2), inserted(3)], SHARDS, None)
    assert [one.row.id for one in unsent.first(2)] == [1, 2]
    assert [one.row.id for one in unsent.first(2)] == [1, 2]


def test_a_quiet_server_brings_the_place_forward() -> None:
    unsent = Unsent()
    unsent.take([Reached(50)], SHARDS, None)
    assert unsent.accepted == 50
    unsent.take([inserted(1), Reached(60), Reached(70)], SHARDS, None)
    assert unsent.accepted == 50
    unsent.drop_first(1)
    assert unsent.accepted == 70


def test_a_place_never_goes_back() -> None:
    unsent = Unsent()
    unsent.take([Reached(50), Committed(40)], SHARDS, None)
    assert unsent.accepted == 50


def test_only_our_shards_and_what_polls_have_not_dealt_with_is_taken() -> None:
    unsent = Unsent()
    taken = unsent.take(
        [inserted(1, shard=5), inserted(2, xid=3), inserted(3, xid=7), inserted(4, xid=12), Committed(9)],
        SHARDS,
        Snapshot.of("7:10:7"),
    )
    assert (taken, ids(unsent)) == (2, [3, 4])


def test_what_is_not_ours_holds_nothing_back() -> None:
    unsent = Unsent()
    assert unsent.take([inserted(1, shard=5), Committed(9)], SHARDS, None) == 0
    assert unsent.accepted == 9


def test_what_a_poll_has_dealt_with_is_dropped() -> None:
    unsent = Unsent()
    unsent.take([inserted(1, xid=3), Committed(9), inserted(2, xid=8), Committed(12)], SHARDS, None)
    unsent.drop_seen(Snapshot.of("5:5:"))
    assert (ids(unsent), len(unsent), unsent.accepted) == ([2], 1, 9)


def test_shards_that_were_given_up_are_dropped() -> None:
    unsent = Unsent()
    unsent.take([inserted(1, shard=0), inserted(2, shard=1), Committed(9)], SHARDS, None)
    unsent.drop_others({1})
    assert ids(unsent) == [2]
    unsent.drop_others(set())
    assert unsent.accepted == 9


def test_it_is_full_by_rows_and_by_bytes_and_has_room_again() -> None:
    unsent = Unsent()
    unsent.take([inserted(number) for number in range(module.MOST_ROWS)], SHARDS, None)
    assert unsent.full
    unsent.drop_first(1)
    assert not unsent.full
    unsent.take([inserted(-1, body=bytes(module.MOST_BYTES))], SHARDS, None)
    assert unsent.full
    unsent.drop_first(len(unsent))
    assert not unsent.full

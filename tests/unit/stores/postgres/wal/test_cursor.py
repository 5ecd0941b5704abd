"""When the cursors may follow, and when the log is not to be trusted."""

from __future__ import annotations

import pytest

from posthouse.errors import StoreUnavailable
from posthouse.store import StuckRow
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.wal.cursor import Dealt, Guard, Mark
from posthouse.stores.postgres.wal.following import ALL, MANY, MOVE, NUDGE, QUIET, SOON, STUCK_PAUSE, Following, line_of
from posthouse.stores.postgres.wal.pgoutput import Committed, Inserted
from tests.unit.stores.postgres.wal.messages import inserted

GUARD = Guard("slot", "1 2", 1000)


def stuck(one: Inserted) -> StuckRow:
    return StuckRow(row=one.row, attempts=1, error="no", after=1.0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ((), "another server"),
        (("reserved", 10, None), "publication"),
        (("reserved", 10, "1 3"), "publication"),
        (("unreserved", 10, "1 2"), "unreserved"),
        (("lost", None, "1 2"), "lost"),
        (("extended", 1001, "1 2"), "wal_keep"),
    ],
)
def test_a_log_that_cannot_be_trusted_is_left(facts: tuple[object, ...], reason: str) -> None:
    with pytest.raises(StoreUnavailable, match=reason):
        GUARD.check(facts)


def test_a_slot_that_holds_back_no_more_than_it_may_is_kept() -> None:
    GUARD.check(("extended", 1000, "1 2"))


def test_only_what_the_snapshot_shows_is_settled() -> None:
    dealt = Dealt()
    dealt.send(inserted(1, xid=3, shard=0))
    dealt.send(inserted(2, xid=3, shard=1))
    dealt.send(inserted(3, xid=9, shard=2))
    waits, later = inserted(4, xid=4, shard=4), inserted(5, xid=8, shard=5)
    dealt.park(waits, stuck(waits))
    dealt.park(later, stuck(later))
    snapshot = Snapshot.of("8:10:8,9")
    sent, parked, shards = dealt.seen(snapshot)
    assert (sent, [one.row.id for one in parked], shards) == ({"t": 2}, [4], {0, 1, 4})
    dealt.forget_seen(snapshot)
    assert dealt.seen(Snapshot.of("99:99:"))[2] == {2, 5}
    assert dealt.rows == 1


def test_what_went_to_another_relay_is_not_settled() -> None:
    dealt = Dealt()
    dealt.send(inserted(1, shard=0))
    dealt.park(inserted(2, shard=1), stuck(inserted(2)))
    dealt.forget_others({1})
    assert dealt.seen(Snapshot.of("9:9:")) == ({}, [stuck(inserted(2))], {1})
    dealt.forget_others(set())
    assert not dealt


def following() -> Following:
    found = Following(GUARD)
    found.take_over(Snapshot.of("1:1:"), set(), now=100.0)
    found.untidy = False
    return found


def test_with_nothing_dealt_with_nothing_is_due() -> None:
    assert following().until_due(1_000.0) > 0


def test_a_busy_log_settles_now_and_then_and_a_quiet_one_at_once() -> None:
    now = following()
    now.dealt.send(inserted(1))
    now.came_at = 200.0
    now.moved_at = 199.9
    assert now.until_due(200.0) == pytest.approx(QUIET)
    now.unsent.take([inserted(2)], {0}, None)
    assert now.until_due(200.0) == pytest.approx(MOVE - 0.1)


def test_many_rows_and_refused_ones_do_not_wait() -> None:
    now = following()
    now.dealt.park(inserted(1), stuck(inserted(1)))
    assert now.until_due(100.0) == pytest.approx(SOON)
    now = following()
    for number in range(MANY):
        now.dealt.send(inserted(number))
    assert now.until_due(100.0) == pytest.approx(SOON)


def test_a_mark_is_due_when_it_is_reached_or_too_slow() -> None:
    now = following()
    now.mark = Mark(Snapshot.of("5:5:"), 30, {}, 100.0)
    now.unsent.take([inserted(1), Committed(30)], {0}, None)
    assert not now.reached
    assert now.until_due(100.0) == pytest.approx(NUDGE)
    now.unsent.drop_first(1)
    assert now.reached
    assert now.until_due(100.0) == 0.0


def test_cursors_that_lag_behind_are_brought_along_now_and_then() -> None:
    now = following()
    now.moved(Snapshot.of("5:8:6"), everything=True, now=100.0)
    assert now.until_due(100.0) == pytest.approx(ALL)
    assert not now.moves_all(101.0)
    assert now.moves_all(100.0 + ALL)
    now.moved(Snapshot.of("8:8:"), everything=False, now=120.0)
    assert now.moves_all(120.0)
    now.moved(Snapshot.of("8:8:"), everything=True, now=121.0)
    assert not now.moves_all(1_000.0)


def test_stuck_rows_are_looked_for_only_while_there_are_any() -> None:
    now = following()
    assert not now.looks_for_stuck(100.0)
    now.stuck.add(line_of(inserted(1).row))
    assert now.looks_for_stuck(100.0)
    assert not now.looks_for_stuck(100.0 + STUCK_PAUSE / 2)
    assert now.looks_for_stuck(100.0 + STUCK_PAUSE)

"""Which transactions a snapshot shows."""

from posthouse.stores.postgres.snapshot import Snapshot


def test_a_snapshot_shows_what_had_ended() -> None:
    snapshot = Snapshot.of("10:20:10,14")
    assert [xid for xid in range(8, 23) if snapshot.sees(xid)] == [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]


def test_a_snapshot_of_a_quiet_server_has_nothing_open() -> None:
    snapshot = Snapshot.of("7:7:")
    assert not snapshot.open
    assert (snapshot.sees(6), snapshot.sees(7)) == (True, False)

"""Pauses grow, are bounded, and are never the same for two writers."""

from __future__ import annotations

from posthouse.processes import Conflicts


def test_pauses_grow_up_to_the_last_and_lie_anywhere_below() -> None:
    conflicts = Conflicts(first_pause=0.1, last_pause=0.5)
    for attempts, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5_000, 0.5)):
        pauses = [conflicts.pause(attempts) for _ in range(300)]
        assert 0.8 * longest < max(pauses) <= longest
        assert min(pauses) < 0.2 * longest
        assert len(set(pauses)) > 250


def test_what_cannot_work_is_said() -> None:
    assert Conflicts().problems("it") == []
    assert Conflicts(attempts=0, first_pause=2.0).problems("it") == [
        "it: conflicts: attempts must be at least 1, not 0",
        "it: conflicts: first_pause must lie between 0 and last_pause",
    ]

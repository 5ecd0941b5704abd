"""Pauses grow, are bounded, and are never the same for two writers."""

from __future__ import annotations

import pytest

from posthouse.errors import ConfigurationError
from posthouse.processes import Conflicts


def test_pauses_grow_up_to_the_last_and_lie_anywhere_below() -> None:
    conflicts = Conflicts(first_pause=0.1, last_pause=0.5)
    for attempts, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5_000, 0.5)):
        pauses = [conflicts.pause(attempts) for _ in range(300)]
        assert 0.8 * longest < max(pauses) <= longest
        assert min(pauses) < 0.2 * longest
        assert len(set(pauses)) > 250


def test_what_cannot_work_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"Conflicts\(attempts=0\): it is a whole number, 1 or more"):
        Conflicts(attempts=0)
    with pytest.raises(ConfigurationError, match=r"first_pause=2 is longer than last_pause=0.5: raise last_pause"):
        Conflicts(first_pause=2.0)

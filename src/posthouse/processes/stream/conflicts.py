"""Conflicts: how often a decision is made again because somebody else was faster."""

from __future__ import annotations

from posthouse.clock import backoff
from posthouse.options import Count, Options, Seconds


class Conflicts(Options):
    """Who writes to a stream that has grown meanwhile loads it again and decides anew. Durations are seconds."""

    attempts: Count = 10
    """How often a decision is made; the first one counts."""
    first_pause: Seconds = 0.01
    """The longest pause before the second one; it doubles from there."""
    last_pause: Seconds = 0.5
    """No pause is longer."""

    def pause(self, attempts: int) -> float:
        """Seconds before the next attempt, after `attempts`; any part of the longest pause, so that two writers do not meet
        again."""
        return backoff(attempts, self.first_pause, self.last_pause, spread=1.0)

    def conflicts(self) -> list[str]:
        if self.first_pause <= self.last_pause:
            return []
        return [
            f"Conflicts: first_pause={self.first_pause:g} is longer than last_pause={self.last_pause:g}: raise last_pause"
        ]

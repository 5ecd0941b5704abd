"""Conflicts: how often a decision is made again because somebody else was faster."""

from __future__ import annotations

import msgspec

from posthouse.clock import backoff


class Conflicts(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes to a stream that has grown meanwhile loads it again and decides anew. Durations are seconds."""

    attempts: int = 10
    """How often a decision is made; the first one counts."""
    first_pause: float = 0.01
    """The longest pause before the second one; it doubles from there."""
    last_pause: float = 0.5
    """No pause is longer."""

    def pause(self, attempts: int) -> float:
        """Seconds before the next attempt, after `attempts`; any part of the longest pause, so that two writers do not meet
        again."""
        return backoff(attempts, self.first_pause, self.last_pause, spread=1.0)

    def problems(self, name: str) -> list[str]:
        """What cannot work, one sentence each."""
        checks = (
            (self.attempts >= 1, f"conflicts: attempts must be at least 1, not {self.attempts}"),
            (0 <= self.first_pause <= self.last_pause, "conflicts: first_pause must lie between 0 and last_pause"),
        )
        return [f"{name}: {sentence}" for fine, sentence in checks if not fine]

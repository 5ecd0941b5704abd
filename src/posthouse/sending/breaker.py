"""A circuit breaker: after failures, wait longer and longer before the next try; one success closes it."""

from __future__ import annotations

from posthouse.clock import backoff


class Breaker:
    """Counts failures in a row. Delays go from `first` to `last` seconds."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self.failures = 0

    def failed(self) -> float:
        """Note a failure; returns the seconds to wait before the next try."""
        self.failures += 1
        return backoff(self.failures, self._first, self._last)

    def succeeded(self) -> bool:
        """Note a success; True when it ends a row of failures."""
        ended, self.failures = self.failures > 0, 0
        return ended

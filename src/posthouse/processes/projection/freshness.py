"""Freshness: how far a read model is behind the facts."""

from __future__ import annotations

import msgspec


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one generation. `seconds` is how old the last event was when it was applied, None when there was none yet.
    `waiting` counts events that it has not read, `held` those that it could not apply."""

    seconds: float | None
    lag: float
    budget: float
    waiting: int
    held: int
    partial: bool = False
    """A part of what happened is not in it and will not come, however short its lag is."""

    @property
    def within(self) -> bool:
        """Whether it keeps its budget and has everything."""
        return self.lag <= self.budget and not self.partial


def freshness(
    *,
    now: float,
    event_at: float,
    applied_at: float,
    since: float,
    budget: float,
    waiting: int,
    held: int,
    partial: bool = False,
) -> Freshness:
    """`lag`: the seconds for which it may be missing something. Nothing waits: none. Else what waits happened after the
    last event that was applied, or, when there was none, after the generation went live (`since`)."""
    behind = waiting > 0 or held > 0
    return Freshness(
        seconds=max(0.0, applied_at - event_at) if applied_at else None,
        lag=max(0.0, now - (event_at or since)) if behind else 0.0,
        budget=budget,
        waiting=waiting,
        held=held,
        partial=partial,
    )

"""The live view of the demonstration: one frame, drawn from one glance."""

from __future__ import annotations

import time
from collections import deque

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from melmastoon.demo.glance import Glance

WIDTH = 40
"""Columns of the longest bar."""

ORDER = {
    "held": "yellow",
    "confirmed": "green",
    "confirmed_cash_pending": "green",
    "dates_changing": "yellow",
    "check_in_started": "yellow",
    "check_in_partial": "bold red",
    "checked_in": "cyan",
    "check_out_started": "yellow",
    "checked_out_balance_pending": "magenta",
    "checked_out": "blue",
    "cancelled": "dim",
    "no_show": "dim",
}
"""States in the order of a booking's life, each with its colour."""

SPAN = 3.0
"""Seconds over which the rate is an average."""


class View:
    """Draws frames. Remembers a few glances for the rate."""

    def __init__(self, bookings: int) -> None:
        self._bookings = bookings
        self._facts: deque[tuple[float, int]] = deque()

    def frame(self, glance: Glance, now: float | None = None) -> RenderableType:
        """What the terminal shows now."""
        return Group(
            self._head(glance, self._rate(glance.facts, time.monotonic() if now is None else now)), self._bars(glance)
        )

    def _rate(self, facts: int, now: float) -> float:
        self._facts.append((now, facts))
        while len(self._facts) > 2 and now - self._facts[0][0] > SPAN:
            self._facts.popleft()
        then, before = self._facts[0]
        return (facts - before) / (now - then) if now > then else 0.0

    def _head(self, glance: Glance, rate: float) -> Text:
        hour = f"{int(glance.hour):02d}:{int(glance.hour * 60) % 60:02d}"
        return Text.assemble(
            (f"{glance.day:%a %d %b %Y} {hour}", "bold"),
            f"   day {glance.days}   {glance.facts:,} facts, {rate:,.0f}/s   ",
            (f"{glance.kills} processes killed", "red" if glance.kills else ""),
            (f"\n{glance.doing}", "dim"),
        )

    def _bars(self, glance: Glance) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        for state, colour in ORDER.items():
            count = glance.bookings.get(state, 0)
            bar = "█" * max(1 if count else 0, round(WIDTH * count / max(1, self._bookings)))
            table.add_row(
                Text(state.replace("_", " "), colour if count else "dim"),
                Text(str(count), justify="right"),
                Text(bar, colour),
            )
        return table

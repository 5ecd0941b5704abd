"""Growth: what processes and a server have in use, looked at again and again, and whether it stays what it was."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

EVERY = 1.0
"""Seconds between two looks."""
MORE = {"bytes": 12_000_000, "files": 10, "threads": 8, "connections": 12}
"""What may come on top of 1.3 times the most of the first third: caches that fill late, sessions of the dead."""
FACTOR = 1.3
LEAST_LOOKS = 12
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


class Growth:
    """Looks at some processes, which must live, and at a server, which may be away."""

    def __init__(self, pids: Sequence[int], url: str) -> None:
        self._pids = pids
        self._url = url
        self._due = 0.0
        self.seen: dict[str, list[int]] = defaultdict(list)
        """The figures of each thing, in the order of time."""

    def look(self) -> None:
        """Take the figures, if it is time to."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY
        for place, pid in enumerate(self._pids):
            for what, figure in in_use(pid).items():
                self.seen[f"{what} of process {place}"].append(figure)
        with contextlib.suppress(psycopg.Error), psycopg.connect(self._url, connect_timeout=5) as connection:
            ((count,),) = connection.execute(CONNECTIONS).fetchall()
            self.seen["connections of the server"].append(count)

    def grown(self) -> dict[str, str]:
        """What is more in the last third of the time than in the first, by more than a little, or was hardly seen."""
        assert len(self.seen) == 3 * len(self._pids) + 1
        return {name: word for name, figures in self.seen.items() if (word := grown(name.split()[0], figures))}


def in_use(pid: int) -> Mapping[str, int]:
    """Of a process."""
    folder = Path("/proc") / str(pid)
    pages, threads = int((folder / "statm").read_text().split()[1]), len(os.listdir(folder / "task"))
    return {"bytes": pages * os.sysconf("SC_PAGESIZE"), "files": len(os.listdir(folder / "fd")), "threads": threads}


def grown(what: str, figures: Sequence[int]) -> str:
    """A word on it, if it has."""
    third = len(figures) // 3
    if third < LEAST_LOOKS // 3:
        return f"seen {len(figures)} times only"
    first, last = max(figures[:third]), max(figures[-third:])
    return f"{first:,} at first, {last:,} at last" if last > FACTOR * first + MORE[what] else ""

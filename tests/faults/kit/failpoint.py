"""Failpoints: a process counts its I/O steps, that is its SQL statements on any file, and ends itself at one of them."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any, Literal

import msgspec

plain_connect = sqlite3.connect
"""Opens connections that are not counted, for the kit's own eyes."""


class Failpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Before or after the `step`-th statement on `file` (any, if empty) that contains `text`: die by SIGKILL, stop by
    SIGSTOP, or lose the answer, which is an I/O error although the statement was carried out. Step 0 is never. The
    steps of opening the services count only if `opening` says so: they are the same for everybody."""

    step: int = 0
    opening: bool = False
    moment: Literal["before", "after"] = "before"
    act: Literal["kill", "stop", "lose"] = "kill"
    file: str = ""
    text: str = ""

    def __str__(self) -> str:
        where = f" of {self.text!r} on {self.file}" if self.text or self.file else ""
        return f"{self.act} {self.moment} step {self.step}{where}"


NEVER = Failpoint()


class Steps:
    """What this process has done so far, and where it ends."""

    def __init__(self, failpoint: Failpoint) -> None:
        self.failpoint = failpoint
        self.taken: list[str] = []
        self.counting = failpoint.opening
        self._matching = 0

    def count(self, file: str, sql: str) -> bool:
        """One more step; True when it is the one to fail at."""
        if not self.counting:
            return False
        self.taken.append(f"{file}: {' '.join(sql.split())[:60]}")
        point = self.failpoint
        if point.file not in ("", file) or point.text not in sql:
            return False
        self._matching += 1
        return self._matching == point.step

    def act(self) -> None:
        """The end, or a pause."""
        if self.failpoint.act == "lose":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        os.kill(os.getpid(), signal.SIGKILL if self.failpoint.act == "kill" else signal.SIGSTOP)

    def install(self) -> None:
        """Count the statements of every connection that is opened from now on in this process."""
        steps = self

        class Counted(CountedConnection):
            def __init__(self, database: Any, *arguments: Any, **options: Any) -> None:
                super().__init__(database, *arguments, **options)
                self.steps = steps
                self.file = Path(database).name

        def connect(database: Any, **options: Any) -> sqlite3.Connection:
            return plain_connect(database, factory=Counted, **options)

        sqlite3.connect = connect  # type: ignore[assignment]


class CountedConnection(sqlite3.Connection):
    """Every statement is a step."""

    steps: Steps
    file: str

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self._step(super().execute, sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        return self._step(super().executemany, sql, parameters)

    def _step(self, run: Any, sql: str, parameters: Any) -> sqlite3.Cursor:
        here = self.steps.count(self.file, sql)
        moment = self.steps.failpoint.moment
        if here and moment == "before":
            self.steps.act()
        cursor: sqlite3.Cursor = run(sql, parameters)
        if here and moment == "after":
            self.steps.act()
        return cursor

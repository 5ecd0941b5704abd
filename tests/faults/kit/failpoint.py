"""Failpoints: a process counts its I/O steps, that is its SQL statements anywhere, and ends itself at one of them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import asyncpg
import msgspec

from posthouse.local.sqlite import CONNECTION

plain_connect = sqlite3.connect
"""Opens connections that are not counted, for the kit's own eyes."""


class Failpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Before or after the `step`-th statement in `book` (any, if empty) that contains the words `text`: die by SIGKILL, stop by
    SIGSTOP, or lose the answer, which is an error although the statement was carried out. `during`: a server was told
    to do it and its answer is not awaited. Step 0 is never. The steps of opening the services count only if `opening`
    says so: they are the same for everybody."""

    step: int = 0
    opening: bool = False
    moment: Literal["before", "during", "after"] = "before"
    act: Literal["kill", "stop", "lose"] = "kill"
    book: str = ""
    text: str = ""

    def __str__(self) -> str:
        where = f" of {self.text!r} in {self.book}" if self.text or self.book else ""
        return f"{self.act} {self.moment} step {self.step}{where}"


NEVER = Failpoint()


class Steps:
    """What this process has done so far, and where it ends."""

    def __init__(self, failpoint: Failpoint) -> None:
        self.failpoint = failpoint
        self.taken: list[str] = []
        self.counting = failpoint.opening
        self._matching = 0

    def count(self, book: str, sql: str) -> bool:
        """One more step; True when it is the one to fail at."""
        if not self.counting:
            return False
        self.taken.append(f"{book}: {_short(sql)}")
        point = self.failpoint
        if point.book not in ("", book) or not re.search(rf"{re.escape(point.text)}(?!\w)", sql):
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
                self.book = Path(database).stem

        def connect(database: Any, **options: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = plain_connect(database, **{**options, "factory": Counted})
            return made

        sqlite3.connect = connect  # type: ignore[assignment]
        self._install_postgres()

    def _install_postgres(self) -> None:
        plain_execute, plain_prepared = asyncpg.Connection.execute, asyncpg.Connection._execute  # type: ignore[attr-defined]

        async def execute(connection: Any, query: str, *arguments: object, timeout: float | None = None) -> Any:
            if arguments:  # comes by again, below
                return await plain_execute(connection, query, *arguments, timeout=timeout)
            return await self._asked(connection, query, lambda: plain_execute(connection, query, timeout=timeout))

        async def prepared(connection: Any, query: str, *arguments: Any, **options: Any) -> Any:
            return await self._asked(
                connection, query, lambda: plain_prepared(connection, query, *arguments, **options)
            )

        asyncpg.Connection.execute = execute  # type: ignore[method-assign, assignment]
        asyncpg.Connection._execute = prepared  # type: ignore[attr-defined]

    async def _asked(self, connection: Any, sql: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """A statement for a server. Its connection bears the name of the book."""
        here = self.count(connection.get_settings().application_name, sql)
        moment = self.failpoint.moment
        if here and moment == "before":
            self.act()
        if here and moment == "during":
            asking = asyncio.ensure_future(run())
            await asyncio.sleep(0)  # it is on its way now
            self.act()
            return await asking
        answer = await run()
        if here and moment == "after":
            if self.failpoint.act == "lose":
                connection.terminate()
                raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
            self.act()
        return answer


def _short(sql: str) -> str:
    """Its first words; of a COMMIT that takes something along, also the last."""
    words = " ".join(sql.rstrip(";").split())
    return f"{words[:50]} … COMMIT" if len(words) > 60 and words.endswith("COMMIT") else words[:60]


class CountedConnection(CONNECTION):  # type: ignore[misc, valid-type]
    """Every statement is a step."""

    steps: Steps
    book: str

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self._step(super().execute, sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        return self._step(super().executemany, sql, parameters)

    def _step(self, run: Any, sql: str, parameters: Any) -> sqlite3.Cursor:
        here = self.steps.count(self.book, sql)
        moment = self.steps.failpoint.moment
        if here and moment == "before":
            self.steps.act()
        cursor: sqlite3.Cursor = run(sql, parameters)
        if here and moment == "after":
            self.steps.act()
        return cursor

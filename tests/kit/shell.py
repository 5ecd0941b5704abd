"""Commands of ours as processes in one folder, as a person would start them."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

PATIENCE = 30.0


class Shell:
    """Commands in one folder; processes that a test left running are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def call(self, *arguments: str) -> str:
        """A command that must succeed; its stdout."""
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def posthouse(self, *arguments: str) -> str:
        return self.call("-c", "from posthouse.cli import main; main()", *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, *arguments: str, verb: str = "run", says: bool = False) -> subprocess.Popen[bytes]:
        """`posthouse run …` in a session of its own; it logs to a file, and what it `says` on stdout goes there too."""
        with (self.folder / "run.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", "from posthouse.cli import main; main()", verb, *arguments],
                cwd=self.folder,
                env=_environment(),
                stdout=log if says else None,
                stderr=log,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def log(self) -> str:
        file = self.folder / "run.log"
        return file.read_text() if file.exists() else ""

    def rows(self, database: str, sql: str) -> list[tuple[object, ...]]:
        """What a query finds; nothing while the table is not there yet."""
        if not (self.folder / database).exists():
            return []
        connection = sqlite3.connect(self.folder / database, timeout=10)
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            connection.close()

    def wait_until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, f"{what} did not happen; the log:\n{self.log()}"
            time.sleep(0.02)


def _environment() -> dict[str, str]:
    ours = ("POSTHOUSE_STORE", "POSTHOUSE_BROKER", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in ours}

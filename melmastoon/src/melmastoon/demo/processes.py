"""The platform in processes of its own: some services each, killed with SIGKILL and started again at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from melmastoon.demo.ground import Ground
from melmastoon.demo.secrets import forget_process
from melmastoon.demo.worker import work
from posthouse import PosthouseError

FAREWELL = 20.0
"""Seconds for a process to finish what it has in flight when it is asked to stop."""


class Running(NamedTuple):
    process: multiprocessing.process.BaseProcess
    lifeline: Connection


class Fleet:
    """One process per group of services. They are forked from a server that has imported everything already, so that a
    new one is there at once."""

    def __init__(self, ground: Ground, groups: Mapping[str, Sequence[str]]) -> None:
        self._ground = ground
        self._groups = groups
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["melmastoon.demo.worker"])
        self._running: dict[str, Running] = {}
        self.kills = 0

    @property
    def names(self) -> Sequence[str]:
        """The groups, each of which is one process."""
        return list(self._groups)

    def services_of(self, name: str) -> Sequence[str]:
        return self._groups[name]

    def start(self) -> None:
        for name in self._groups:
            self.start_one(name)

    def start_one(self, name: str) -> None:
        theirs, ours = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=work, args=(self._ground, self._groups[name], theirs), name=f"melmastoon {name}", daemon=True
        )
        process.start()
        theirs.close()
        self._running[name] = Running(process, ours)

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye, nothing is finished. Returns when the process is gone."""
        running = self._running.pop(name)
        running.process.kill()
        running.process.join()
        running.lifeline.close()
        if running.process.pid is not None:
            forget_process(Path(self._ground.folder), running.process.pid)
        self.kills += 1

    def check(self) -> None:
        """Raises PosthouseError, with the last lines of the log, when a process ended that nobody asked to. Others may be killed
        and started in threads meanwhile: whoever is killed is taken out before it dies."""
        ended = [(name, running) for name, running in tuple(self._running.items()) if not running.process.is_alive()]
        fallen = [name for name, running in ended if self._running.get(name) is running]
        if fallen:
            raise PosthouseError(f"the processes of {', '.join(fallen)} fell:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of the log that all processes share."""
        log = Path(self._ground.folder) / "workers.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "there is no log"

    def stop(self) -> None:
        """Ask all to stop, and end those that do not."""
        for running in self._running.values():
            with contextlib.suppress(OSError):
                running.lifeline.send_bytes(b"stop")
        for running in self._running.values():
            running.process.join(FAREWELL)
            if running.process.is_alive():
                running.process.kill()
                running.process.join()
            running.lifeline.close()
        self._running.clear()

"""A world: the files of one run, and the processes on them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from posthouse.runtime import PARTS, Part
from tests.faults.kit.failpoint import NEVER, Failpoint, plain_connect
from tests.faults.kit.jobs import Deal, Produce, Result, Work
from tests.faults.kit.nursery import Child, Nursery
from tests.faults.kit.report import Report, judge
from tests.faults.kit.shop import USUAL, Conditions

BOTH = ("orders", "billing")
LATER = 120.0
"""Seconds of the shop's clock after which every lease and every claim of a dead process has run out."""


class World:
    """One folder with a store for each service and one log. `conditions` are those of all its processes."""

    def __init__(self, folder: Path, nursery: Nursery, conditions: Conditions) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.crashes = 0
        self.conditions = msgspec.structs.replace(conditions, base=conditions.base or time.time())
        self._nursery = nursery

    def copy(self, folder: Path) -> World:
        """The same state elsewhere. Nobody may have the files open."""
        shutil.copytree(self.folder, folder)
        return World(folder, self._nursery, self.conditions)

    def remove(self) -> None:
        """Clean up."""
        shutil.rmtree(self.folder)

    def wait_out(self) -> None:
        """From now on, processes start so much later that nothing is leased any more."""
        self.conditions = msgspec.structs.replace(self.conditions, shift=self.conditions.shift + LATER)

    def produce(self, deals: Sequence[Deal], failpoint: Failpoint = NEVER) -> Child:
        """A producer with a fixed list of deals."""
        job = Produce(folder=str(self.folder), conditions=self.conditions, failpoint=failpoint, deals=deals)
        return self._nursery.start(job)

    def produce_on(self, name: str, seed: int, pause: float) -> Child:
        """A producer that makes up deals until it is told to stop."""
        job = Produce(folder=str(self.folder), conditions=self.conditions, name=name, seed=seed, pause=pause)
        return self._nursery.start(job)

    def work(
        self,
        services: Sequence[str] = BOTH,
        parts: Sequence[Part] = PARTS,
        failpoint: Failpoint = NEVER,
        *,
        quiet: bool = False,
        tidy: bool = False,
    ) -> Child:
        """A process that runs parts of services, until it is told to stop or, with `quiet`, nothing is left to do."""
        job = Work(
            folder=str(self.folder),
            conditions=self.conditions,
            failpoint=failpoint,
            services=services,
            parts=parts,
            until="quiet" if quiet else "told",
            tidy=tidy,
        )
        return self._nursery.start(job)

    def crashed(self, child: Child) -> bool:
        """Wait for a child that may die at its failpoint; True when it did."""
        code = child.wait()
        assert code in (0, -9), f"{child.job} ended with {code}\n{child.trouble()}"
        self.crashes += code != 0
        return code != 0

    def kill(self, child: Child) -> None:
        """A crash from outside."""
        self.crashes += child.kill() == -9

    def drain(self) -> Result:
        """Run everything, undisturbed, until nothing moves."""
        return self.work(quiet=True).result()

    def judge(self, result: Result | None = None, waiting: Iterable[str] = ()) -> Report:
        """The verdict on what is in the files; of a world that was drained, with its figures."""
        return judge(self.folder, result.figures if result else None, crashes=self.crashes, waiting=waiting)

    def rows(self, file: str, sql: str) -> list[tuple[object, ...]]:
        """Look into one of the files."""
        with closing(plain_connect(self.folder / f"{file}.db")) as connection:
            return connection.execute(sql).fetchall()

    def change(self, file: str, *statements: str) -> None:
        """Change one of the files by hand, in one transaction."""
        with closing(plain_connect(self.folder / f"{file}.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def figure(self, file: str, sql: str) -> int:
        """One number out of one of the files."""
        return int(str(self.rows(file, sql)[0][0]))

    def runs(self) -> list[str]:
        """The intents whose handler was run, once for each run."""
        file = self.folder / "runs.log"
        return file.read_text().split() if file.exists() else []

    def log(self) -> str:
        """What the processes logged."""
        file = self.folder / "log.txt"
        return file.read_text() if file.exists() else ""


class Worlds:
    """Makes worlds in a folder of the test's own."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._count = 0

    def new(self, conditions: Conditions = USUAL) -> World:
        """An empty one."""
        return World(self._next(), self._nursery, conditions)

    def copy(self, world: World) -> World:
        """Another one in the same state."""
        return world.copy(self._next())

    def _next(self) -> Path:
        self._count += 1
        return self._folder / f"world-{self._count}"


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> float:
    """Wait for a condition; returns the seconds that it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.005)
    return time.monotonic() - begun

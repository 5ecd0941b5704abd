"""A world: the files and tables of one run, and the processes on them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from posthouse.runtime import PARTS, Part
from tests.faults.kit.failpoint import NEVER, Failpoint
from tests.faults.kit.ground import Ground
from tests.faults.kit.jobs import Deal, InboundEvent, Produce, Result
from tests.faults.kit.joined import ProduceJoined
from tests.faults.kit.nursery import PATIENCE, Child, Nursery
from tests.faults.kit.quiet import UNSENT, UNSENT_IN_POSTGRES
from tests.faults.kit.report import Report, judge
from tests.faults.kit.shop import USUAL, Conditions

BOTH = ("orders", "billing")
LETTERS = """
SELECT f.id, f.key, f.headers, f.body FROM frames f JOIN topics t ON t.id = f.topic WHERE t.name = 'shop.orders.order.dlq'
"""
"""The dead letters of orders as they lie in the log."""
LATER = 120.0
"""Seconds of the shop's clock after which every lease and every claim of a dead process has run out."""


class World:
    """One folder with a store for each service and one log, or with a database instead. `conditions` are those of all
    its processes."""

    def __init__(self, folder: Path, nursery: Nursery, conditions: Conditions, ground: Ground) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.crashes = 0
        self.stubborn = False
        """Whether its processes wait for a database that is away."""
        self.conditions = msgspec.structs.replace(conditions, base=conditions.base or time.time())
        self._nursery = nursery
        self._ground = ground

    @property
    def on_postgres(self) -> bool:
        """Whether the stores are in a PostgreSQL database."""
        return bool(self.conditions.database)

    def copy(self, folder: Path) -> World:
        """The same state elsewhere. Nobody may have the files open."""
        shutil.copytree(self.folder, folder)
        database = self._ground.copied(self.conditions.database)
        return World(folder, self._nursery, msgspec.structs.replace(self.conditions, database=database), self._ground)

    def remove(self) -> None:
        """Clean up."""
        shutil.rmtree(self.folder)
        self._ground.clear(self.conditions.database)

    def wait_out(self) -> None:
        """From now on, processes start so much later that nothing is leased any more."""
        self.conditions = msgspec.structs.replace(self.conditions, shift=self.conditions.shift + LATER)

    def produce(self, deals: Sequence[Deal], failpoint: Failpoint = NEVER) -> Child:
        """A producer with a fixed list of deals."""
        job = Produce(folder=str(self.folder), conditions=self.conditions, failpoint=failpoint, deals=deals)
        return self._nursery.start(job)

    def produce_on(self, name: str, seed: int, pause: float, *, joined: bool = False) -> Child:
        """A producer that makes up deals until it is told to stop, in transactions of its service or of its own."""
        kind = ProduceJoined if joined else Produce
        folder, conditions, stubborn = str(self.folder), self.conditions, self.stubborn
        job = kind(folder=folder, conditions=conditions, name=name, seed=seed, pause=pause, stubborn=stubborn)
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
        job = InboundEvent(
            folder=str(self.folder),
            conditions=self.conditions,
            failpoint=failpoint,
            services=services,
            parts=parts,
            until="quiet" if quiet else "told",
            tidy=tidy,
            stubborn=self.stubborn,
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

    def drain(self, patience: float = PATIENCE) -> Result:
        """Run everything, undisturbed, until nothing moves."""
        return self.work(quiet=True).result(patience)

    def judge(self, result: Result | None = None, waiting: Iterable[str] = ()) -> Report:
        """The verdict on what was written; of a world that was drained, with its figures."""
        figures = result.figures if result else None
        with self.conditions.books(self.folder) as books:
            return judge(
                self.folder, books, figures, ledgers=self.conditions.ledgers, crashes=self.crashes, waiting=waiting
            )

    def rows(self, book: str, sql: str) -> list[tuple[object, ...]]:
        """Look into one of the books."""
        with self.conditions.books(self.folder) as books:
            return books.ask(book, sql)

    def change(self, book: str, *statements: str) -> None:
        """Change one of the books by hand."""
        with self.conditions.books(self.folder) as books:
            for statement in statements:
                books.ask(book, statement)

    def figure(self, book: str, sql: str) -> int:
        """One number out of one of the books."""
        return int(str(self.rows(book, sql)[0][0] or 0))

    def unsent(self, book: str) -> int:
        """How many facts of a service the broker has not accepted, or whether there are any."""
        return self.figure(book, UNSENT_IN_POSTGRES if self.on_postgres else UNSENT)

    def runs(self) -> list[str]:
        """The intents whose handler was run, once for each run."""
        file = self.folder / "runs.log"
        return file.read_text().split() if file.exists() else []

    def log(self) -> str:
        """What the processes logged."""
        file = self.folder / "log.txt"
        return file.read_text() if file.exists() else ""


class Worlds:
    """Makes worlds in a folder of the test's own, and on the ground that it has for stores."""

    def __init__(self, folder: Path, nursery: Nursery, ground: Ground) -> None:
        self._folder = folder
        self._nursery = nursery
        self._ground = ground
        self._count = 0

    def new(self, conditions: Conditions = USUAL) -> World:
        """An empty one."""
        conditions = msgspec.structs.replace(conditions, database=self._ground.new())
        return World(self._next(), self._nursery, conditions, self._ground)

    def copy(self, world: World) -> World:
        """Another one in the same state."""
        return world.copy(self._next())

    def _next(self) -> Path:
        self._count += 1
        return self._folder / f"world-{self._count}"

"""A process that runs sagas, killed at any of its I/O steps: each booking ends as it would have, and is done once."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse.store.sagas import SagaTurn
from tests.faults.kit.books import Books
from tests.faults.kit.failpoint import Failpoint
from tests.faults.kit.ground import Ground
from tests.faults.kit.nursery import Child, Nursery
from tests.faults.saga_scene import BOOKINGS, Stay
from tests.kit.long import LONG

pytestmark = pytest.mark.timeout(300)

SIDE_BY_SIDE = 4
MEMORY = Path("/dev/shm")

LEDGER = {
    "ok": ["hold", "room", "paid"],
    "fail": ["hold", "room", "release", "drop hold"],
    "late": ["hold", "drop hold"],
    "slow": ["hold", "drop hold", "release"],
    "early": ["hold", "room", "paid"],
    "ahead": ["hold", "room", "paid"],
}
VENDOR = {
    "ok": ["allocated", "confirmed"],
    "fail": ["allocated", "freed", "cancelled"],
    "late": ["cancelled"],
    "slow": ["cancelled", "allocated", "freed"],
    "early": ["allocated", "confirmed"],
    "ahead": ["allocated", "confirmed"],
}
COMPENSATED = ("fail", "late", "slow")


class Hotel:
    """The files, or the database, of one run."""

    def __init__(self, folder: Path, nursery: Nursery, ground: Ground) -> None:
        folder.mkdir()
        self.folder = folder
        self._nursery = nursery
        self._ground = ground
        self._base = time.time()
        self.database = ground.new()

    def run(self, failpoint: Failpoint) -> Child:
        job = Stay(folder=str(self.folder), base=self._base, database=self.database, failpoint=failpoint)
        return self._nursery.start(job)

    def violations(self) -> list[str]:
        """What is not as it should be, read without the code under test."""
        with Books(self.folder, self.database) as books:
            return [*_wrong_ledgers(books), *_wrong_sagas(books), *_left_over(books)]

    def put_aside(self) -> list[str]:
        """What came before its time and waited."""
        with Books(self.folder, self.database) as books:
            records = books.ask("reservation", "SELECT record FROM posthouse_saga_turn")
        turns = [msgspec.json.decode(record, type=SagaTurn) for (record,) in records]
        return [turn.input.type for turn in turns if turn.waits_for]

    def log(self) -> str:
        file = self.folder / "log.txt"
        return file.read_text()[-4000:] if file.exists() else ""

    def remove(self) -> None:
        self._ground.clear(self.database)


class Hotels:
    """Makes them."""

    def __init__(self, folder: Path, nursery: Nursery, ground: Ground) -> None:
        self._parts = (nursery, ground)
        self._folder = folder
        self._count = 0

    def new(self) -> Hotel:
        self._count += 1
        return Hotel(self._folder / f"hotel-{self._count}", *self._parts)


@pytest.fixture
def hotels(nursery: Nursery, ground: Ground) -> Iterator[Hotels]:
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="posthouse-", dir=memory) as folder:
        yield Hotels(Path(folder), nursery, ground)


def test_sagas_end_as_they_should_wherever_their_process_is_killed(hotels: Hotels) -> None:
    undisturbed = hotels.new()
    steps = undisturbed.run(Failpoint()).result().steps
    assert undisturbed.violations() == []
    assert len(undisturbed.put_aside()) == 2
    points = points_of(steps, server=bool(undisturbed.database))
    killed = 0
    for first in range(0, len(points), SIDE_BY_SIDE):
        some = [(point, hotels.new()) for point in points[first : first + SIDE_BY_SIDE]]
        for child in [hotel.run(point) for point, hotel in some]:
            code = child.wait()
            assert code in (0, -9), child.trouble()
            killed += code == -9
        for (point, hotel), child in [(one, one[1].run(Failpoint())) for one in some]:
            child.result()
            violations = hotel.violations()
            assert not violations, f"{point} ({steps[point.step - 1]}): {violations}\n{hotel.log()}"
            hotel.remove()
    assert killed >= 0.5 * len(points), f"only {killed} of {len(points)} runs were killed"
    print(f"{killed} kills at {len(points)} places among {len(steps)} steps")


def points_of(steps: Sequence[str], *, server: bool) -> list[Failpoint]:
    """Around the commits of the store and before statements that write, evenly thinned out to what a minute allows: how
    often a loop looks again differs from run to run, so no place is more telling than another."""
    telling = [
        Failpoint(step=number, moment=moment)
        for number, step in enumerate(steps, 1)
        if not step.startswith("log: ") and _writes(step)
        for moment in (("before", "during", "after") if server else ("before", "after"))
        if step.endswith("COMMIT") or moment == "before"
    ]
    most = len(telling) if LONG else (16 if server else 40)
    return telling[:: max(1, len(telling) // most)]


def _writes(step: str) -> bool:
    words = step.partition(": ")[2]
    return words.endswith("COMMIT") or words.startswith(("INSERT", "UPDATE", "DELETE", "WITH", "SAVEPOINT", "ROLLBACK"))


def _wrong_ledgers(books: Books) -> Iterator[str]:
    for book, expected in (("reservation", LEDGER), ("vendor", VENDOR)):
        for booking in BOOKINGS:
            found = [
                what for (what,) in books.ask(book, f"SELECT what FROM ledger_of_{book} WHERE booking = ?", (booking,))
            ]
            if sorted(found) != sorted(expected[booking]):
                yield f"{book} did {found} for {booking}"


def _wrong_sagas(books: Books) -> Iterator[str]:
    for number, booking, status, turn, state in books.ask(
        "reservation", "SELECT number, id, status, turn, state FROM posthouse_saga"
    ):
        if status != ("compensated" if booking in COMPENSATED else "completed"):
            yield f"{booking} ended as {status}"
        if msgspec.json.decode(state)["entries"] != len(LEDGER[booking]):
            yield f"the state of {booking} counts {state}"
        yield from _wrong_history(books, number, booking, turn)


def _wrong_history(books: Books, number: int, booking: str, last: int) -> Iterator[str]:
    records = books.ask(
        "reservation", "SELECT record FROM posthouse_saga_turn WHERE number = ? ORDER BY turn", (number,)
    )
    turns = [msgspec.json.decode(record, type=SagaTurn) for (record,) in records]
    if [turn.turn for turn in turns] != list(range(1, last + 1)):
        yield f"the history of {booking} is {[turn.turn for turn in turns]}, its last turn {last}"
    for what, waits in (("took", False), ("put aside", True)):
        inputs = [one.input.event_id for one in turns if one.input.event_id and bool(one.waits_for) == waits]
        if len(inputs) != len(set(inputs)):
            yield f"{booking} {what} an event twice: {inputs}"


def _left_over(books: Books) -> Iterator[str]:
    for book, table in (
        ("reservation", "posthouse_timer"),
        ("reservation", "posthouse_saga_waiting"),
        ("reservation", "posthouse_held"),
        ("vendor", "posthouse_held"),
    ):
        if left := books.ask(book, f"SELECT count(*) FROM {table}")[0][0]:
            yield f"{left} left in {table} of {book}"

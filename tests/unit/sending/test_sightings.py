"""Which versions are in use is noted for nothing and written seldom."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.sending import VersionUsage
from posthouse.store import Sighting


class Notebook:
    """Counts what is written to it."""

    def __init__(self) -> None:
        self.pages: list[Sequence[Sighting]] = []

    async def note(self, sightings: Sequence[Sighting], now: float | None = None) -> None:
        self.pages.append(sightings)

    async def seen(self) -> Sequence[Sighting]:
        return [one for page in self.pages for one in page]


async def test_a_first_sight_is_written_at_once_and_a_known_one_once_an_hour() -> None:
    sightings, notebook = VersionUsage(), Notebook()
    for second in range(0, 7200, 10):
        sightings.note("applied", "billing", "a.done.v1", float(second))
        await sightings.write(notebook, float(second))
    assert [page[0].last_at for page in notebook.pages] == [0.0, 3600.0]
    sightings.note("applied", "billing", "a.done.v2", 7200.0)
    assert await sightings.write(notebook, 7201.0) == 2


async def test_nothing_is_written_while_nothing_is_seen() -> None:
    sightings, notebook = VersionUsage(), Notebook()
    assert await sightings.write(notebook, 1.0) == 0
    sightings.note("published", "orders", "a.done.v1", 1.0)
    assert await sightings.write(notebook, 1.0) == 1
    assert await sightings.write(notebook, 10_000.0) == 0
    assert len(notebook.pages) == 1


async def test_at_the_end_all_that_is_newer_is_written() -> None:
    sightings, notebook = VersionUsage(), Notebook()
    sightings.note("applied", "c", "a.done.v1", 1.0)
    await sightings.write(notebook, 1.0)
    sightings.note("applied", "c", "a.done.v1", 2.0)
    assert await sightings.write(notebook, 2.0) == 0
    assert await sightings.write(notebook, 2.0, every=0.0) == 1
    assert notebook.pages[-1] == [Sighting("applied", "c", "a.done.v1", 2.0, 2.0)]


async def test_a_clock_that_was_set_back_does_not_stop_the_writing() -> None:
    sightings, notebook = VersionUsage(), Notebook()
    sightings.note("applied", "c", "a.done.v1", 100_000.0)
    await sightings.write(notebook, 200_000.0)
    sightings.note("applied", "c", "a.done.v1", 100_001.0)
    assert await sightings.write(notebook, 100_001.0) == 1

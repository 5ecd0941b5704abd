"""Which versions are in use is noted for nothing and written seldom."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.seam import VersionUsage
from posthouse.store import VersionUse


class Notebook:
    """Counts what is written to it."""

    def __init__(self) -> None:
        self.pages: list[Sequence[VersionUse]] = []

    async def note(self, usage: Sequence[VersionUse], now: float | None = None) -> None:
        self.pages.append(usage)

    async def seen(self) -> Sequence[VersionUse]:
        return [one for page in self.pages for one in page]


async def test_a_first_sight_is_written_at_once_and_a_known_one_once_an_hour() -> None:
    usage, notebook = VersionUsage(), Notebook()
    for second in range(0, 7200, 10):
        usage.note("applied", "billing", "a.done.v1", float(second))
        await usage.write(notebook, float(second))
    assert [page[0].last_at for page in notebook.pages] == [0.0, 3600.0]
    usage.note("applied", "billing", "a.done.v2", 7200.0)
    assert await usage.write(notebook, 7201.0) == 2


async def test_nothing_is_written_while_nothing_is_seen() -> None:
    usage, notebook = VersionUsage(), Notebook()
    assert await usage.write(notebook, 1.0) == 0
    usage.note("published", "orders", "a.done.v1", 1.0)
    assert await usage.write(notebook, 1.0) == 1
    assert await usage.write(notebook, 10_000.0) == 0
    assert len(notebook.pages) == 1


async def test_at_the_end_all_that_is_newer_is_written() -> None:
    usage, notebook = VersionUsage(), Notebook()
    usage.note("applied", "c", "a.done.v1", 1.0)
    await usage.write(notebook, 1.0)
    usage.note("applied", "c", "a.done.v1", 2.0)
    assert await usage.write(notebook, 2.0) == 0
    assert await usage.write(notebook, 2.0, every=0.0) == 1
    assert notebook.pages[-1] == [VersionUse("applied", "c", "a.done.v1", 2.0, 2.0)]


async def test_a_clock_that_was_set_back_does_not_stop_the_writing() -> None:
    usage, notebook = VersionUsage(), Notebook()
    usage.note("applied", "c", "a.done.v1", 100_000.0)
    await usage.write(notebook, 200_000.0)
    usage.note("applied", "c", "a.done.v1", 100_001.0)
    assert await usage.write(notebook, 100_001.0) == 1

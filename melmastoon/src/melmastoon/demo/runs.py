"""Many runs, one after the other: `python -m melmastoon.demo.runs --seeds 200`. Each has guests, faults and kills of its own;
one whose figures do not add up is named with its seed, and can be played again."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from melmastoon.demo.books import Files
from melmastoon.demo.cast import cast
from melmastoon.demo.clock import SharedClock
from melmastoon.demo.counting import figures
from melmastoon.demo.director import play
from melmastoon.demo.figures import Figures
from melmastoon.demo.ground import MONDAY, Ground
from melmastoon.demo.inside import Inside
from melmastoon.demo.script import DAY
from melmastoon.platform import SERVICES

KILLING = 0.15
"""The chance of a kill each time that things settle."""


async def played_inside(folder: Path, *, bookings: int, seed: int, killing: float = KILLING) -> Figures:
    """One run in this process, on a broker that has a bad day."""
    began = time.monotonic()
    ground = Ground(folder=str(folder), seed=seed, bookings=bookings)
    calendar = SharedClock.made(ground.clock_file, MONDAY)
    with ground.outside():
        world = Inside(folder, SERVICES, calendar, seed=seed, killing=killing)
        try:
            await world.start()
            await play(world, cast(seed, bookings))
        finally:
            await world.stop()
    days = (calendar.now() - MONDAY) / DAY
    seconds = time.monotonic() - began
    return figures(Files(folder), folder, SERVICES, kills=world.kills, days=days, seconds=seconds)


def run(seed: int, bookings: int) -> tuple[int, Figures]:
    """One run in a folder of its own."""
    logging.getLogger("posthouse").setLevel(logging.CRITICAL)  # there is nothing but trouble to be told
    with tempfile.TemporaryDirectory(prefix="melmastoon-run-") as folder:
        return seed, asyncio.run(played_inside(Path(folder), bookings=bookings, seed=seed))


def runs(seeds: Iterable[int], bookings: int, jobs: int) -> Iterator[tuple[int, Figures]]:
    """Many of them, in as many processes."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, seeds, [bookings] * len(list(seeds)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m melmastoon.demo.runs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=25, help="how many runs (default: 25)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--bookings", type=int, default=15, help="bookings in each (default: 15)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    wanted = parser.parse_args()
    began, total, wrong = time.monotonic(), Counter[str](), []
    for seed, found in runs(range(wanted.first, wanted.first + wanted.seeds), wanted.bookings, wanted.jobs):
        total.update({"runs": 1, "facts": found.facts, "applied": found.applied, "kills": found.kills})
        total.update({f"booking {name}": count for name, count in found.bookings.items()})
        total.update(
            {f"saga {saga} {status}": n for saga, by in found.sagas_by_kind.items() for status, n in by.items()}
        )
        figures = f"{found.facts:,} facts, {found.kills} kills, {found.seconds:g} s"
        if found.adds_up:
            print(f"seed {seed} adds up ({figures})", file=sys.stderr, flush=True)
        else:
            wrong.append(seed)
            print(f"seed {seed} does not add up ({figures}): {'; '.join(found.findings)}", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:>9,}  {name}")
    print(f"{len(wrong)} of {wanted.seeds} runs do not add up {wrong or ''} ({time.monotonic() - began:.0f} s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.report PAGE RESULTS …`: put the readings of result files between the markers of a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.reading import Reading

HEAD = "| measure | ours | beside it | unit | ratio | goal | met |\n|---|---:|---:|---|---:|---|---|"


def table(readings: Sequence[Reading]) -> str:
    """The readings as a table of Markdown."""
    return "\n".join([HEAD, *map(_line, readings)])


def _line(reading: Reading) -> str:
    met = {True: "yes", False: "**no**", None: ""}[reading.met]
    ratio = "" if reading.ratio is None else f"{reading.ratio:.2f}"
    cells = (reading.measure, figure(reading.ours), figure(reading.limit), reading.unit, ratio, reading.wanted, met)
    return f"| {' | '.join(cells)} |"


def figure(value: float | None) -> str:
    """As people read it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def put(page: str, name: str, text: str) -> str:
    """The page with `text` between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"the page needs {begin} and {end}, once each, for the table to stand between")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def main(page: Path, *results: Path) -> None:
    """Each result file goes between the markers with its own name, without the suffix."""
    text = page.read_text(encoding="utf-8")
    for result in results:
        readings = msgspec.json.decode(result.read_bytes(), type=list[Reading])
        text = put(text, result.stem, table(readings))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

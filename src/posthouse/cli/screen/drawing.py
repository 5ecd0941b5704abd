"""Drawing: a screen as lines of text that fit a terminal of so many columns and lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from posthouse.cli.output import aimed, plain, span
from posthouse.cli.screen.model import Need, Process, Row, Screen
from posthouse.cli.sentences import Sentence
from posthouse.cli.timing import COLUMNS as TIMING
from posthouse.cli.timing import rows_of
from posthouse.seam.timing import ServiceTiming

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
"""From nothing to the most of the last minute; the second for a terminal that cannot show the first."""

GAP = 2
MOST_BARS = 60
HEADLINE_LINES, SENTENCE_LINES = 2, 3
"""The most lines of each."""
LEAST = (4, 5, 3, 2, 0)
"""So many lines each section has before another gets more: sentences, consumers, services, processes, timing."""

STYLES: Mapping[Need, str] = {Need.NONE: "", Need.SOON: "yellow", Need.NOW: "bold red"}

CONSUMERS = ("CONSUMER", "APPLIED/S", "LAST MINUTE", "IN FLIGHT", "OLDEST", "HELD", "")
SERVICES = ("SERVICE", "COMMITS/S", "LAST MINUTE", "UNSENT", "OLDEST", "", "WAKE-UP")
NAME, RATE, MINUTE, COUNT, AGE, DETAIL, WORD = range(7)
RIGHT = (RATE, COUNT, AGE)

TIERS = ((15, {WORD: 12, NAME: 16, DETAIL: 17}), (8, {WORD: 11, NAME: 12, DETAIL: 10}))
"""Columns that the bars of the last minute are to have, and down to which widths others make room for that; with fewer than the
last there are no bars."""

Block = Sequence[Text]
"""Lines that are shown together or not at all."""


class Place(NamedTuple):
    """Where it is drawn. `now` is the clock of the looks, `fancy` says that any character can be shown."""

    columns: int
    lines: int
    now: float
    fancy: bool = True


class Section(NamedTuple):
    """A part of the screen. `more` says in words that so many blocks were left out."""

    head: Sequence[Text]
    blocks: Sequence[Block]
    more: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.head) + sum(map(len, self.blocks)) if self.blocks else 0

    def folded(self, most: int) -> list[Text]:
        """In so many lines, at most; the last one says what was left out."""
        if len(self) <= most:
            return [*self.head, *(line for block in self.blocks for line in block)]
        lines, left = [*self.head], len(self.blocks)
        for block in self.blocks:
            if len(lines) + len(block) >= most:
                break
            lines += block
            left -= 1
        return [*lines, Text(self.more(left), "dim")][:most]


def drawn(screen: Screen, foot: str, place: Place) -> list[Text]:
    """At most as many lines as there are, each no longer than there are columns. `foot` tells of the looks, in one line."""
    old = "" if screen.old is None else f"THESE FIGURES ARE {span(screen.old)} OLD · "
    headline = _wrapped(screen.headline, place.columns, HEADLINE_LINES)
    lines = [*(Text(line, STYLES[screen.need] or "bold green") for line in headline), Text(plain(old + foot), "dim")]
    sections = [
        _sentences(screen.sentences, place),
        *_tables(screen, place),
        _processes(screen.processes),
        _timing(screen.timing),
    ]
    for section, most in zip(sections, _shares(sections, place.lines - len(lines)), strict=True):
        if most > 1 + len(section.head):
            lines += [Text(), *section.folded(most - 1)]
    if screen.old is not None:
        first = len(headline) + 1
        lines = [*lines[:first], *(Text(line.plain, "dim") for line in lines[first:])]
    return [_cut(line, place.columns) for line in lines[: place.lines]]


def _shares(sections: Sequence[Section], room: int) -> list[int]:
    """How many lines each may have, a blank one before it included. Each has its least first, then one more in turn."""
    wanted = [len(section) + 1 if len(section) else 0 for section in sections]
    shares = [0] * len(sections)
    for number, least in enumerate(LEAST):
        shares[number] = min(wanted[number], least + 1 if least else 0, room)
        room -= shares[number]
    while room > 0 and any(share < want for share, want in zip(shares, wanted, strict=True)):
        for number, want in enumerate(wanted):
            if room > 0 and shares[number] < want:
                shares[number] += 1
                room -= 1
    return shares


def _sentences(found: Sequence[Sentence], place: Place) -> Section:
    blocks = []
    for sentence in found:
        lines = _wrapped(aimed(sentence.text), place.columns - 2, SENTENCE_LINES)
        mark = "• " if place.fancy else "- "
        blocks.append([Text(f"{'  ' if n else mark}{line}", sentence.style) for n, line in enumerate(lines)])
    return Section((), blocks, lambda left: f"… and {left:,} more, which `posthouse status` says")


def _wrapped(text: str, columns: int, most: int) -> list[str]:
    """In so many lines, at most; what is left then is cut off."""
    columns = max(20, columns)
    lines = [line.plain.rstrip() for line in Text(plain(text)).wrap(Console(width=columns), columns)]
    return (
        lines
        if len(lines) <= most
        else [*lines[: most - 1], f"{set_cell_size(lines[most - 1], columns - 1).rstrip()}…"]
    )


def _tables(screen: Screen, place: Place) -> tuple[Section, Section]:
    """Consumers and services, their columns below each other."""
    found = [(CONSUMERS, screen.consumers), (SERVICES, screen.services)]
    cells = [[_cells(row) for row in rows] for _, rows in found]
    heads = [[Text(word, "bold") for word in columns] for columns, rows in found if rows]
    widths = _widths([*heads, *(row for rows in cells for row in rows)], place.columns)
    sections = [
        Section(
            [_joined([Text(_head(word, widths[n]), "bold") for n, word in enumerate(columns)], widths)],
            [
                [_joined([*row[:MINUTE], _bars(of, widths[MINUTE], place), *row[MINUTE + 1 :]], widths)]
                for of, row in zip(rows, table, strict=True)
            ],
            _left_out(rows),
        )
        for (columns, rows), table in zip(found, cells, strict=True)
    ]
    return sections[0], sections[1]


def _head(word: str, width: int) -> str:
    """`MINUTE` where there is no room for `LAST MINUTE`."""
    return word if len(word) <= width else word.split()[-1] if word else ""


def _left_out(rows: Sequence[Row]) -> Callable[[int], str]:
    def said(left: int) -> str:
        hidden = rows[len(rows) - left :]
        needing = sum(row.need is not Need.NONE for row in hidden)
        if needing:
            return f"… and {left:,} more, {needing:,} of them in trouble"
        return f"… and {left:,} more that add up" if all(row.word == "adds up ✓" for row in hidden) else _calm(left)

    return said


def _calm(left: int) -> str:
    return f"… and {left:,} more, none in trouble"


def _cells(row: Row) -> list[Text]:
    style = STYLES[row.need]
    return [
        Text(plain(row.name), style),
        Text("…" if row.series.rate is None else _rate(row.series.rate)),
        Text(),
        Text(f"{row.count:,}"),
        Text("" if row.age is None else span(row.age)),
        Text(row.detail, style),
        Text(plain(row.word), style or ("green" if row.word == "adds up ✓" else "")),
    ]


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _bars(row: Row, width: int, place: Place) -> Text:
    """The last minute; a place where nobody looked is empty."""
    if not width:
        return Text()
    bars = row.series.bars(width, place.now)
    most = max((bar for bar in bars if bar is not None), default=0.0)
    signs = BARS if place.fancy else PLAIN_BARS
    steps = len(signs) - 1
    said = [" " if bar is None else signs[math.ceil(bar / most * steps) if most else 0] for bar in bars]
    return Text("".join(said), "cyan")


def _widths(table: Sequence[Sequence[Text]], columns: int) -> list[int]:
    """Words, names and details give way to the bars of the last minute; where that is not enough, the bars go."""
    widths = [max((cell_len(row[n].plain) for row in table), default=0) for n in range(len(CONSUMERS))]
    if not any(row[AGE].plain for row in table if row[AGE].style != "bold"):
        widths[AGE] = 0
    widths[MINUTE] = 0
    room = columns - sum(widths) - GAP * (sum(map(bool, widths)))
    for wanted, least in TIERS:
        for flexible, width in least.items():
            given = min(max(0, widths[flexible] - width), max(0, wanted - room))
            widths[flexible] -= given
            room += given
    if room >= TIERS[-1][0]:
        widths[MINUTE] = min(room, MOST_BARS)
    return widths


def _joined(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """One line; a cell that is too long for its column is cut."""
    line = Text()
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if not width:
            continue
        short = _cut(cell, width, middle=number == NAME)
        pad = " " * (width - cell_len(short.plain))
        line += Text(" " * GAP if line.plain else "")
        line += Text(pad) + short if number in RIGHT else short + Text(pad)
    line.rstrip()
    return line


def _cut(text: Text, columns: int, *, middle: bool = False) -> Text:
    """No longer than so many columns. Names differ at their beginning and at their end."""
    if cell_len(text.plain) <= columns:
        return text
    if not middle:
        shorter = text.copy()
        shorter.truncate(columns, overflow="ellipsis")
        return shorter
    front = columns // 2
    back = text.plain[len(text.plain) - (columns - front - 1) :]
    return Text(set_cell_size(f"{set_cell_size(text.plain, front)}…{back}", columns), text.style)


def _processes(found: Sequence[Process]) -> Section:
    blocks = []
    for one in found:
        runs = one.parts if one.need is Need.NONE else f"SILENT for {span(abs(one.age))}, ran {one.parts}"
        said = f"{one.name}  {runs}, for {span(one.since)}: {one.services}, posthouse {one.version}"
        blocks.append([Text(plain(said), STYLES[one.need])])
    return Section([Text("WHO RUNS", "bold")], blocks, lambda left: f"… and {left:,} more")


def _timing(timed: Sequence[ServiceTiming]) -> Section:
    rows = [row for one in timed for row in rows_of(one)]
    table = [[str(cell) if not isinstance(cell, int) else f"{cell:,}" for cell in row] for row in [TIMING, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        Text("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()) for row in table
    ]
    return Section([lines[0]], [[line] for line in lines[1:]], lambda left: f"… and {left:,} more")

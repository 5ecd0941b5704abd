"""Output: facts for people as tables, for programs as one JSON value. Errors and progress go to stderr."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

import msgspec
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posthouse.errors import ConfigurationError
from posthouse.redaction import redacted, without_carried

Cell = str | int | Text

UNLIMITED = 10_000
"""Columns where nobody looks: what goes into a file or a pipe is never cut."""

LAST_COLUMN = 16
"""The last column of a table may be cut down to so many columns before the table becomes a list."""

GAP = 2

READER_GONE = 128 + 13
"""Ended by SIGPIPE, which is not on every system."""

STYLES = {
    "retrying": "yellow",
    "gap": "cyan",
    "blocked": "blue",
    "dead": "bold red",
    "quarantined": "magenta",
    "skipped": "dim",
}

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


_HINT = re.compile(r"(`posthouse [a-z -]+) TARGET\b")
_aim: list[str] = []


def aim(*targets: str) -> None:
    """What was named on the command line, for hints that name a command with TARGET."""
    _aim[:] = targets


def aimed(text: str) -> str:
    """A hint, with the target as it was given; as it is where there were several, of which it would have to be one."""
    return _HINT.sub(lambda found: f"{found[1]} {shlex.quote(_aim[0])}", text) if len(_aim) == 1 else text


def stdout() -> Console:
    """Where facts go."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Where everything else goes."""
    return _console(sys.stderr)


def say(text: str | Text, style: str = "") -> None:
    """One fact, in words."""
    stdout().print(plain(without_carried(aimed(text))) if isinstance(text, str) else text, style=style, soft_wrap=True)


def complain(text: str) -> None:
    """One sentence about what went wrong."""
    stderr().print(plain(redacted(aimed(text))), style="red", soft_wrap=True)


def confirm(question: str) -> None:
    """Ask before something is done; typer.Abort where the answer is no. Where nobody can answer, `--yes` is named."""
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        raise ConfigurationError("nobody can be asked here, since stdin is no terminal: say --yes to do it") from None
    if not agreed:
        raise typer.Abort


def print_json(value: object) -> None:
    """One JSON value. Structs keep their field names, bytes become base64."""
    typer.echo(without_carried(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Rows under headings; on a terminal too narrow for that, one block per row."""
    console = stdout()
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(cell_len(text.plain) for text in column) for column in zip(map(Text, columns), *cells, strict=True)]
    room = console.width - sum(widths[:-1]) - GAP * (len(widths) - 1)
    if room >= min(widths[-1], LAST_COLUMN):
        console.print(_table(columns, rows, cells, room))
    else:
        for number, row in enumerate(cells):
            if number:
                console.print()
            print_facts(list(zip(columns, row, strict=True)))


def print_facts(facts: Sequence[tuple[str, Cell]]) -> None:
    """Names and values below each other; what has no value is left out. A program gets lines without a padded edge."""
    if stdout().width == UNLIMITED:
        told = [(name, text) for name, value in facts if (text := _text(value).plain)]
        widest = max((cell_len(name) for name, _ in told), default=0) + GAP
        for name, text in told:
            say(Text(name.ljust(widest) + text.replace("\n", "\n" + " " * widest)))
        return
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if _text(value).plain:
            grid.add_row(name, _text(value))
    stdout().print(grid)


def state_text(state: str) -> Text:
    """The state of a held event in its colour."""
    return Text(state, STYLES.get(state, ""))


def one_line(text: str) -> str:
    """The first line of a text that may have many."""
    return text.strip().partition("\n")[0]


def span(seconds: float) -> str:
    """A duration in its largest unit: `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, thing: str) -> str:
    """`1 event`, `1,200 events`, `2 processes`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}{'es' if thing.endswith('s') else 's'}"


def plain(text: str) -> str:
    """The text without power over the terminal: what events and errors say is not to be trusted with it."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def end_of_reader() -> NoReturn:
    """Nobody reads on, as after `| head`: end quietly, with the code that the shell shows for any command which ends so. It must not
    look like a check that failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in its buffer goes nowhere
    raise SystemExit(READER_GONE)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        end_of_reader()


def _console(stream: TextIO) -> Console:
    console = _Console(file=stream, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED
    return console


def _text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(f"{cell:,}" if isinstance(cell, int) else plain(cell))


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], cells: Sequence[Sequence[Text]], room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        right = bool(rows) and isinstance(rows[0][number], int)
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for *first, last in cells:
        table.add_row(*first, _cut(last, room))
    return table


def _cut(text: Text, room: int) -> Text:
    if cell_len(text.plain) <= room:
        return text
    return Text(set_cell_size(text.plain, room - 1) + "…", text.style)

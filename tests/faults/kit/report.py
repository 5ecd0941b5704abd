"""The report: what was said, what was applied, and every way in which the two may differ."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posthouse.watch.status import Status
from tests.faults.kit.books import MISSING, Books
from tests.faults.kit.shop import INVOICED

Line = tuple[str, str]
"""Tenant and key."""


class Row(NamedTuple):
    """One fact said, or one effect applied; a fact that was only said has no number."""

    n: str
    tenant: str
    key: str | None
    kind: str
    sequence: int | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """The words of the fault matrix. Lists name the intents concerned; all but the first five figures should be empty.

    `acknowledged`: the producer was told that it committed. `recovered`: it was not told, but it did commit. `lost` is
    split by where in its key's line the event is missing: before all that were applied, between them, behind them.
    """

    attempted: int = 0
    acknowledged: int = 0
    committed: int = 0
    recovered: int = 0
    applied: int = 0
    crashes: int = 0
    lost_prefix: Sequence[str] = ()
    lost_middle: Sequence[str] = ()
    lost_postfix: Sequence[str] = ()
    duplicated: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    out_of_order: Sequence[str] = ()
    imbalance: Sequence[str] = ()

    @property
    def violations(self) -> dict[str, Sequence[str]]:
        """What should be empty and is not."""
        return {name: value for name, value in vars(self).items() if not isinstance(value, int) and value}

    def __add__(self, other: Report) -> Report:
        mine, theirs = vars(self), vars(other)
        sums: dict[str, Any] = {
            name: value + theirs[name] if isinstance(value, int) else [*value, *theirs[name]]
            for name, value in mine.items()
        }
        return Report(**sums)

    def __str__(self) -> str:
        lost = len(self.lost_prefix) + len(self.lost_middle) + len(self.lost_postfix)
        return (
            f"attempted {self.attempted:,}, acknowledged {self.acknowledged:,}, recovered {self.recovered:,}, "
            f"applied {self.applied:,}, lost {lost} (prefix {len(self.lost_prefix)}, middle {len(self.lost_middle)}, "
            f"postfix {len(self.lost_postfix)}), duplicated {len(self.duplicated)}, unexpected {len(self.unexpected)}, "
            f"out of order {len(self.out_of_order)}, imbalance {len(self.imbalance)}, crashes {self.crashes:,}"
        )


def judge(
    folder: Path,
    books: Books,
    figures: Status | None,
    *,
    ledgers: Sequence[str],
    crashes: int,
    waiting: Iterable[str] = (),
) -> Report:
    """Read the books of a world that has come to rest. `waiting` names intents that are rightly held for an operator."""
    said, held = _rows(books, "orders", "said"), set(waiting)
    notes = _notes(folder / "acks.log")
    committed = {row.n for row in said}
    report = Report(
        attempted=len(notes["attempted"] | notes["broken"]),
        acknowledged=len(notes["acknowledged"]),
        committed=len(committed),
        recovered=len(committed - notes["acknowledged"]),
        crashes=crashes,
        lost_middle=sorted(notes["acknowledged"] - committed),
        unexpected=sorted(committed & notes["broken"]) + sorted(committed - notes["attempted"]),
        imbalance=_imbalance(figures),
    )
    for ledger in ledgers:
        booked = _rows(books, "billing", ledger)
        report += _compare([row for row in said if row.n not in held], booked, ordered=ledger != "ledger_loose")
    invoiced = [row for row in _rows(books, "billing", "ledger") if row.kind in INVOICED]
    return report + _compare(invoiced, _rows(books, "orders", "receipt"))


def _compare(expected: Sequence[Row], found: Sequence[Row], *, ordered: bool = True) -> Report:
    """Line by line: the same intents, each once; where there is an order, in the same one, numbered 1, 2, 3 …"""
    wanted, got = _lines(expected), _lines(found)
    report = Report(applied=len(found))
    for line in sorted(wanted.keys() | got.keys(), key=str):
        report += _compare_line(wanted[line], got[line], ordered=ordered and line[1] is not None)
    return report


def _compare_line(wanted: Sequence[Row], got: Sequence[Row], *, ordered: bool) -> Report:
    names, applied = [row.n for row in wanted], [row.n for row in got]
    times = Counter(applied)
    places = [place for place, name in enumerate(names) if name in times]
    first, last = (places[0], places[-1]) if places else (len(names), len(names))
    missing = [(place, name) for place, name in enumerate(names) if name not in times]
    numbers = [row.sequence for row in got]
    in_order = [name for name in names if name in times]
    return Report(
        lost_prefix=[name for place, name in missing if place < first and places],
        lost_middle=[name for place, name in missing if first < place < last],
        lost_postfix=[name for place, name in missing if place > last or not places],
        duplicated=[name for name, number in times.items() if number > 1],
        unexpected=[name for name in times if name not in set(names)],
        out_of_order=applied if ordered and (list(times) != in_order or numbers != [*range(1, len(got) + 1)]) else (),
    )


def _lines(rows: Sequence[Row]) -> defaultdict[tuple[str, str | None], list[Row]]:
    """Rows per line, in the order in which they were committed; rows without order are one line per tenant."""
    lines: defaultdict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        lines[row.tenant, None if row.kind == "seen" else row.key].append(row)
    return lines


def _imbalance(figures: Status | None) -> list[str]:
    if figures is None:
        return []
    found = [str(line) for line in figures.lines if line.difference or line.in_flight]
    found += [f"{name} has {number} unsent" for name, number in figures.unsent.items() if number]
    return found + [f"{name} has {number} stuck" for name, number in figures.stuck.items() if number]


COLUMNS = {"said": "n, tenant, key, kind, NULL", "receipt": "n, tenant, key, 'issued', sequence"}
BOOKED = "n, tenant, key, kind, sequence"


def _rows(books: Books, book: str, table: str) -> list[Row]:
    try:
        found = books.ask(book, f"SELECT {COLUMNS.get(table, BOOKED)} FROM {table} ORDER BY id")
    except MISSING as error:
        if "no such table" in str(error) or "does not exist" in str(error):
            return []
        raise
    return [Row(*columns) for columns in found]


def _notes(file: Path) -> dict[str, set[str]]:
    """What the producers wrote down outside any database."""
    notes: dict[str, set[str]] = {"attempted": set(), "acknowledged": set(), "broken": set()}
    for line in file.read_text().splitlines() if file.exists() else ():
        word, name = line.split()
        notes[word].add(name)
    return notes

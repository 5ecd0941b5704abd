"""`posthouse schema versions`: who publishes and applies which version, when last, and which are on their way out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from posthouse.cli.catalog.freezing import Directory
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, print_json, print_table, say
from posthouse.cli.target import Targets, load_all
from posthouse.frozen import retired_in
from posthouse.governance.bundle import FOLDER
from posthouse.governance.cutover import VersionLine, versions_of
from posthouse.service import Service

COLUMNS = ("VERSION", "PUBLISHED BY", "APPLIED BY", "DEPRECATED", "")


def versions(targets: Targets, folder: Directory = Path(FOLDER), as_json: AsJson = False) -> None:
    """Show who publishes and applies which version of an event, when last, and which versions are on their way out.

    Times are at most an hour old while services run. Producers are watched where a fact has several versions or a date.
    """
    lines = asyncio.run(_look(load_all(targets), folder))
    if as_json:
        print_json({"versions": lines})
    elif lines:
        print_table(COLUMNS, [_row(line) for line in lines])
    else:
        say("no events are declared")


async def _look(services: Sequence[Service], folder: Path) -> Sequence[VersionLine]:
    async with opened(services):
        return await versions_of(services, retired_in(folder))


def _row(line: VersionLine) -> tuple[Cell, ...]:
    return (
        line.subject,
        _parties(line.producers),
        _parties(line.consumers) or "nobody listed",
        f"{line.deprecated:%Y-%m-%d}" if line.deprecated else "",
        _remark(line),
    )


def _parties(parties: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} ({_when(at)})" for name, at in parties.items())


def _when(at: float | None) -> str:
    return "never seen" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _remark(line: VersionLine) -> str:
    if line.retired:
        return f"retired on {line.retired:%Y-%m-%d}"
    if line.beside:
        return f"published beside {line.beside}"
    return f"next is {line.successor}" if line.successor else ""

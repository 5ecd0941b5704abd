"""`posthouse doctor`: what was looked at, what was found, and how to mend it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import typer
from rich.text import Text

from posthouse.app import apps_of
from posthouse.checks import Check, Judgement
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, aimed, print_json, print_table, say
from posthouse.cli.sheet import sheet_rows
from posthouse.cli.target import Targets, load_all
from posthouse.service import Service
from posthouse.watch.examining import Examination, examine

STYLES: dict[Judgement, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    healthy: bool
    examinations: Sequence[Examination]


def doctor(targets: Targets, as_json: AsJson = False) -> None:
    """Look at the store and the broker of each service: settings, roles, tables, open transactions, and the promise that
    results. Changes nothing. Ends with code 1 when something keeps a service from running or from keeping its promise.
    """
    services = load_all(targets)
    examinations = asyncio.run(examine_all(services))
    healthy = not any(check.judgement == "fail" for found in examinations for check in found.checks)
    if as_json:
        print_json(Report(healthy=healthy, examinations=examinations))
    else:
        for examination in examinations:
            _show(examination)
        _sum_up(examinations)
    if not healthy:
        raise typer.Exit(CHECK_FAILED)


async def examine_all(services: Sequence[Service]) -> list[Examination]:
    """What is found about the store and the broker of each App, which is closed then."""
    found: list[Examination] = []
    for app in apps_of(services):
        try:
            found += await examine(app)
        finally:
            await app.aclose()
    return found


def _show(examination: Examination) -> None:
    say(f"{examination.service}, {examination.part}: {examination.place}", "bold")
    print_table(("CHECK", "", "FOUND"), [_row(check) for check in examination.checks])
    for check in examination.checks:
        if check.fix:
            say(Text.assemble((f"{check.name}: ", STYLES[check.judgement]), aimed(check.fix)))
    if examination.sheet is not None:
        say("")
        print_table(("CAPABILITY", "", "MEANING"), sheet_rows(examination.sheet))
        say("\nThe promise that results:")
        for clause in examination.promise:
            verdict = Text("yes" if clause.holds else "no", "green" if clause.holds else "yellow")
            say(Text.assemble(f"{clause.text}: ", verdict, f", because {clause.because}"))
    say("")


def _row(check: Check) -> tuple[Cell, ...]:
    return check.name, Text(check.judgement, STYLES[check.judgement]), check.found


def _sum_up(examinations: Sequence[Examination]) -> None:
    checks = [check for examination in examinations for check in examination.checks]
    warned, failed = (sum(check.judgement == kind for check in checks) for kind in ("warn", "fail"))
    style = "bold red" if failed else "yellow" if warned else "green"
    say(f"{len(checks)} checks: {failed} failed, {warned} with a warning", style)

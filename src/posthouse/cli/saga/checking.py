"""`posthouse saga check`: whether a release can run the sagas that are stored."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from posthouse.app import app_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import plain, print_json, say
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError
from posthouse.processes.saga import Comparison
from posthouse.service import Service

WORDS = {"fail": ("cannot go on", "bold red"), "warn": ("to know", "yellow")}


def check(
    target: Target,
    every: Annotated[
        bool,
        typer.Option("--all", help="Look at every one, not at some of each shape among the oldest and the newest."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the sagas that are not over with the class that will run them: fields, steps that are done, deadlines that
    are armed, undos under way, calls that are out. Ends with code 1 when some could not go on, as a start would refuse. Changes nothing."""
    service = load(target)
    if not service.declared.saga_types:
        raise ConfigurationError(f"{service.name} declares no saga: declare one with @{service.name}.saga(…)")
    comparison = asyncio.run(_compare(service, every))
    failed = any(one.judgement == "fail" for one in comparison.findings)
    if as_json:
        print_json(
            {
                "fits": not failed,
                "counts": comparison.counts,
                "besides": comparison.besides,
                "findings": comparison.findings,
            }
        )
    else:
        _show(comparison)
    if failed:
        raise typer.Exit(CHECK_FAILED)


async def _compare(service: Service, every: bool) -> Comparison:
    async with opened([service]):
        return await app_of(service).sagas.compare(every=every)


def _show(comparison: Comparison) -> None:
    for finding in comparison.findings:
        word, style = WORDS[finding.judgement]
        say(Text.assemble((f"{word}: ", style), f"{finding.saga}: {plain(str(finding))}"))
        say(f"  {finding.fix}")
    compared = ", ".join(f"{number:,} of {name}" for name, number in comparison.counts.items())
    verdict = "" if comparison.findings else ": all fit"
    if comparison.besides:
        more = ", ".join(f"{number:,} more of {name}" for name, number in comparison.besides.items())
        compared += f" (not compared: {more}, begun between these; --all compares them)"
    say(f"compared, of those that are not over: {compared}{verdict}", "" if comparison.findings else "green")

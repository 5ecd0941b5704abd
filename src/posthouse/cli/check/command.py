"""`posthouse check`: findings with a reason and a fix."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.check.gathering import facts_of, settings_in
from posthouse.cli.check.showing import as_annotations, as_sarif, show, show_rule
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.output import print_json
from posthouse.cli.target import Targets, load_all
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.document import Document, from_json
from posthouse.governance.policies import RULES, Examination, Facts, examine


class Format(StrEnum):
    """How findings are written."""

    HUMAN = "human"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def _explain(rule: str | None) -> None:
    if rule is None:
        return
    if rule not in RULES:
        raise ConfigurationError(f"there is no rule {rule!r}.{did_you_mean(rule, RULES)}")
    show_rule(RULES[rule])
    raise typer.Exit


FormatOption = Annotated[
    Format, typer.Option("--format", help="For people, programs, code scanning or a workflow's log.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings fail too.")]
Explain = Annotated[
    str | None,
    typer.Option("--explain", metavar="RULE", callback=_explain, is_eager=True, help="Say what a rule finds, and why."),
]


def check(
    targets: Targets, written: FormatOption = Format.HUMAN, strict: Strict = False, explain: Explain = None
) -> None:
    """Look for anti-patterns in what services declare and in their code. Nothing is opened or changed.

    A TARGET may also be one catalogue, as `posthouse catalog --json` writes it. Ends with 1 when there are errors. Rules are
    set in [tool.posthouse.check] of pyproject.toml; `# posthouse: allow RULE: reason` allows one finding.
    """
    examination = examine(_facts(targets))
    match written:
        case Format.HUMAN:
            show(examination)
        case Format.JSON:
            print_json(_as_json(examination, strict))
        case Format.SARIF:
            print_json(as_sarif(examination))
        case Format.GITHUB:
            if examination.findings:
                typer.echo(as_annotations(examination))
    if examination.fails(strict=strict):
        raise typer.Exit(CHECK_FAILED)


def _as_json(examination: Examination, strict: bool) -> dict[str, object]:
    return {
        "passes": not examination.fails(strict=strict),
        "findings": examination.findings,
        "allowed": examination.allowed,
    }


def _facts(targets: list[str]) -> Facts:
    settings, root = settings_in(Path.cwd().resolve())
    today = datetime.fromtimestamp(SystemClock().now(), UTC).date()
    if any(target.endswith(".json") for target in targets):
        return Facts(document=_catalogue(targets), today=today, settings=settings)
    modules = [target.partition(":")[0] for target in targets]
    return facts_of(load_all(targets), settings, root=root, today=today, modules=modules)


def _catalogue(targets: list[str]) -> Document:
    if len(targets) > 1:
        raise ConfigurationError("a catalogue is checked alone: name one .json file, or services")
    try:
        return from_json(Path(targets[0]).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{targets[0]} cannot be read: {error.strerror}") from error

"""`posthouse schema check`: the gate for pull requests. It works from git alone, or from a bundle, with no server."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.cli.catalog.freezing import Directory
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.schema.reports import Form, Located, print_report
from posthouse.cli.schema.sides import past, present
from posthouse.cli.target import load_all
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.frozen import retired_in
from posthouse.governance.bundle import FOLDER
from posthouse.governance.comparing import compare_schemas
from posthouse.governance.evolution import Mode
from posthouse.governance.folder import write_folder
from posthouse.governance.gate import BYPASSES, Bypass, Report, examine
from posthouse.governance.gate.bypass import bypass_of, bypasses_file, read_bypasses
from posthouse.governance.listing import catalogue_of
from posthouse.governance.local.git import Repository

Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET]...", help="module:service; its code is compared too, and its handlers are named."),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="REF|BUNDLE",
        help="A git ref, or a frozen catalogue as a folder, .tar.gz or .zip. Without it: where the work left the main "
        "branch, or the last tag.",
    ),
]
ModeOption = Annotated[Mode, typer.Option("--mode", case_sensitive=False, help="What a change must keep.")]
FormOption = Annotated[Form, typer.Option("--format", case_sensitive=False, help="Who will read the report.")]
Incident = Annotated[
    str | None,
    typer.Option(
        "--bypass", metavar="INCIDENT", help="Let the findings pass and record it: the incident's id, INC-1234."
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why the findings must pass; goes with --bypass.")]


def check(
    targets: Services = None,
    against: Against = None,
    folder: Directory = Path(FOLDER),
    mode: ModeOption = Mode.ADDITIVE,
    form: FormOption = Form.PEOPLE,
    as_json: AsJson = False,
    incident: Incident = None,
    reason: Reason = "",
) -> None:
    """Would this change break somebody? Compares the frozen schemas with those of the last release, and says whom.

    Ends with 0 when the change may pass, 1 when it may not, 2 when the comparison cannot be made.
    """
    _refuse(mode, incident, reason)
    after = present(folder)
    code = catalogue_of(load_all(targets)) if targets else None
    before = past(against, folder)
    report = msgspec.structs.replace(
        examine(before.bundle, after, mode, compare_schemas, code=code, retired=retired_in(folder)), against=before.said
    )
    recorded = _recorded(folder)
    report = report.allowing(recorded)
    if incident is not None and report.standing:
        recorded = [*recorded, _bypass(report, incident, reason, folder)]
        write_folder(folder, {BYPASSES: bypasses_file(recorded)})
        report = report.allowing(recorded)
    print_report(report, Form.JSON if as_json else form, Located(folder))
    if not report.passes:
        raise typer.Exit(CHECK_FAILED)


def _refuse(mode: Mode, incident: str | None, reason: str) -> None:
    """What cannot be meant, before any work is done."""
    if mode.transitive:
        raise ConfigurationError(
            f"{mode.value} asks for every past version, and the gate has one to compare with: use {mode.step.value}"
        )
    if incident is None and reason:
        raise ConfigurationError("--reason goes with --bypass INCIDENT")
    if incident is not None:
        bypass_of((), incident=incident, reason=reason, by="somebody", at=_now())


def _recorded(folder: Path) -> list[Bypass]:
    try:
        return list(read_bypasses((folder / BYPASSES).read_bytes()))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigurationError(f"cannot read {folder / BYPASSES}: {error.strerror}") from error


def _bypass(report: Report, incident: str, reason: str, folder: Path) -> Bypass:
    return bypass_of(report.standing, incident=incident, reason=reason, by=_who(folder), at=_now())


def _now() -> datetime:
    return datetime.fromtimestamp(int(SystemClock().now()), UTC)


def _who(folder: Path) -> str:
    """Who runs this: the one who started the workflow, git's author, or the user of the machine."""
    if actor := os.environ.get("GITHUB_ACTOR"):
        return actor
    with suppress(ConfigurationError):
        if author := Repository(folder).author():
            return author
    with suppress(OSError, KeyError):  # a user without a name
        return getpass.getuser()
    return ""

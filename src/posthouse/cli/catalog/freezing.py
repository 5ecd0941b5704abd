"""`posthouse catalog freeze|check`: the catalogue as files under version control."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import complain, counted, print_json, say
from posthouse.cli.target import Targets, load_all
from posthouse.contracts.lock import LOCK
from posthouse.frozen import lock_in
from posthouse.governance.agreement import Disagreement, disagreements
from posthouse.governance.bundle import FOLDER
from posthouse.governance.document import Document
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze as frozen
from posthouse.governance.listing import catalogue_of
from posthouse.governance.semver import with_semver

Directory = Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="Where the frozen files are.")]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; do what `catalog check` does.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Remove the schemas of events that these services no longer declare.")
]


def freeze(
    targets: Targets,
    folder: Directory = Path(FOLDER),
    prune: Prune = False,
    only_check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the schemas of services, topics.json and a lock of content hashes, to be committed.

    Files that say the same already are not touched, nor are those of services that are not named.
    """
    document = catalogue_of(load_all(targets))
    if only_check:
        _report(document, folder, as_json)
        return
    made = frozen(document, read_folder(folder), prune=prune)
    touched = write_folder(folder, made.files, made.stale if prune else ())
    if as_json:
        print_json({"touched": touched, "stale": [] if prune else made.stale})
        return
    for path in touched:
        say(f"{folder / path}")
    say(f"{counted(len(document.events), 'event')} frozen, {counted(len(touched), 'file')} changed", "green")
    if made.stale and not prune:
        say(
            f"{counted(len(made.stale), 'schema')} no longer declared: --prune removes {', '.join(made.stale)}",
            "yellow",
        )


def check(targets: Targets, folder: Directory = Path(FOLDER), as_json: AsJson = False) -> None:
    """Compare what services declare with the frozen files. Ends with code 1 when they disagree."""
    _report(catalogue_of(load_all(targets)), folder, as_json)


def versioned(document: Document, folder: Path) -> Document:
    """With the versions that are frozen in a folder, if there is one."""
    return with_semver(document, lock_in(folder)) if (folder / LOCK).is_file() else document


def _report(document: Document, folder: Path, as_json: bool) -> None:
    found = disagreements(document, read_folder(folder))
    if as_json:
        print_json({"agree": not found, "disagreements": found})
    elif found:
        _complain(found, folder)
    else:
        say(f"{counted(len(document.events), 'event')} as frozen in {folder}", "green")
    if found:
        raise typer.Exit(CHECK_FAILED)


def _complain(found: Sequence[Disagreement], folder: Path) -> None:
    for one in found:
        complain(f"{one.kind}: {one.sentence}")
    complain(f"{counted(len(found), 'disagreement')} between the code and {folder}")

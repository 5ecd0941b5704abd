"""`posthouse contract write`: what consumers expect, as pact files for the repositories of their producers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, print_json, say
from posthouse.cli.target import Targets, load_all
from posthouse.governance.folder import write_folder
from posthouse.governance.listing import catalogue_of
from posthouse.governance.pacts import expectations_of, pacts_of

PactFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the pact files go.")]


def write(folder: PactFolder, targets: Targets, as_json: AsJson = False) -> None:
    """Write what the handlers of services read of others: one message pact (Pact, version 3) for each pair.

    Give the files to the producer's repository: `posthouse contract verify --pacts FOLDER` checks them there.
    """
    services = load_all(targets)
    known = {event_type.name: event_type for service in services for event_type in service.declared.catalogue}
    found = expectations_of(catalogue_of(services), known)
    files = pacts_of(one for one in found if one.provider != one.consumer.partition(".")[0])
    touched = write_folder(folder, files)
    if as_json:
        print_json({"files": sorted(files), "touched": touched})
        return
    for name in touched:
        say(str(folder / name))
    say(f"{counted(len(files), 'pact')}, {counted(len(touched), 'file')} changed", "green")

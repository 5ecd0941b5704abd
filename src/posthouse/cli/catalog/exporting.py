"""`posthouse catalog export`: the catalogue in the formats of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.cli.catalog.freezing import Directory, versioned
from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, print_json, say
from posthouse.cli.target import load_all
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import FOLDER
from posthouse.governance.document import from_json
from posthouse.governance.exports import FORMATS, Files, Source, thawed
from posthouse.governance.exports import export as exported
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.listing import catalogue_of

Format = Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")]
Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help="module:service, or the module alone when it has one service."),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Where to write; without it, one file goes to stdout.")
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="PATH", help="In place of services: a folder of frozen schemas, or a file of `show --json`."
    ),
]


def export(
    format: Format,
    targets: Services = None,
    out: Out = None,
    origin: From = None,
    folder: Directory = Path(FOLDER),
    as_json: AsJson = False,
) -> None:
    """Write the catalogue for other tools: AsyncAPI, EventCatalog, Markdown, a list of CloudEvents types, Terraform.

    Nothing is opened. Files that say the same already are not touched, and none is removed.
    """
    files = exported(_source(targets or [], origin, folder), format)
    if out is None:
        _print(files, as_json)
        return
    touched = write_folder(out, {path: text.encode(errors="replace") for path, text in files.items()})
    if as_json:
        print_json({"files": list(files), "touched": touched})
        return
    for path in touched:
        say(f"{out / path}")
    say(f"{counted(len(files), 'file')}, {len(touched):,} changed", "green")


def _source(targets: list[str], origin: Path | None, folder: Path) -> Source:
    if bool(targets) == (origin is not None):
        raise ConfigurationError("name services as module:service, or say --from a folder or a file; one of both")
    if origin is None:
        services = load_all(targets)
        brokers = {service.name: app_of(service).opened.ports.broker_url for service in services}
        return Source(document=versioned(catalogue_of(services), folder), brokers=brokers)
    if origin.is_dir():
        return thawed(read_folder(origin))
    try:
        return Source(document=from_json(origin.read_bytes()))
    except OSError as error:
        raise ConfigurationError(f"cannot read {origin}: {error.strerror}") from error


def _print(files: Files, as_json: bool) -> None:
    if as_json:
        print_json(files)
    elif len(files) == 1:
        (text,) = files.values()
        typer.echo(text, nl=False)
    else:
        raise ConfigurationError(f"these are {len(files)} files: say --out and a folder")

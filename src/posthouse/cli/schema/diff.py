"""`posthouse schema diff`: two files, one verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.cli.options import AsJson
from posthouse.cli.output import print_json
from posthouse.cli.schema.formats import Format, compare_files, format_of, text_of
from posthouse.cli.schema.verdict import EXIT_CODES, show
from posthouse.errors import ConfigurationError, SchemaError
from posthouse.events.limits import UNREADABLE
from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.json_schema import Past, compare

Old = Annotated[Path, typer.Argument(metavar="OLD", help="The schema as it was: .json, .avsc or .proto.")]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The schema as it is to be.")]
ModeOption = Annotated[Mode, typer.Option("--mode", case_sensitive=False, help="What the change must keep.")]
PastFile = Annotated[
    Path | None,
    typer.Option(
        "--past", help="Past messages, one JSON value per line, for ADDITIVE: a range may be tightened if all fit."
    ),
]


def diff(old: Old, new: New, mode: ModeOption = Mode.BACKWARD, past: PastFile = None, as_json: AsJson = False) -> None:
    """Whom does a change break? Ends with 0 when nobody, 1 when somebody, 2 when that cannot be told or the input is bad.

    BACKWARD: new readers read old data. FORWARD: old readers read new data. FULL: both. ADDITIVE: the house rules for one
    version of an event.
    """
    verdict = _verdict(old, new, mode, past)
    if as_json:
        print_json({"mode": mode, "old": str(old), "new": str(new), **msgspec.to_builtins(verdict)})
    else:
        show(verdict, mode.value)
    raise typer.Exit(EXIT_CODES[verdict.outcome])


def _verdict(old: Path, new: Path, mode: Mode, past: Path | None) -> Verdict:
    if past is None:
        return compare_files(old, new, mode)
    if mode is not Mode.ADDITIVE or {format_of(old), format_of(new)} != {Format.JSON}:
        raise ConfigurationError("--past goes with --mode ADDITIVE and JSON Schema")
    return compare(text_of(old), text_of(new), mode, past=_messages(past))


def _messages(file: Path) -> Iterator[Past]:
    """The lines of a file; it may be large."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield Past(_message(line, file, number))
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}") from error


def _message(line: bytes, file: Path, number: int) -> object:
    try:
        return msgspec.json.decode(line)
    except UNREADABLE as error:
        raise SchemaError(f"{file}, line {number}: not JSON: {error}") from error

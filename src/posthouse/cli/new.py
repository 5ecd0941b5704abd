"""`posthouse new`: a small service project that runs at once."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from posthouse.cli.options import AsJson
from posthouse.cli.output import print_json, say
from posthouse.errors import ConfigurationError

SUFFIX = ".template"

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def new(
    name: Annotated[str, typer.Argument(help="The service: lower-case letters, digits and underscores.")],
    directory: Annotated[Path, typer.Option(help="Where the project's folder is made.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a small service project that runs at once."""
    _refuse_bad(name)
    folder = directory / name
    _refuse_taken(folder)
    try:
        written = _write(name, folder)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {folder}: {error.strerror}") from error
    if as_json:
        print_json({"folder": str(folder), "files": written})
    else:
        _say_what_next(folder, written)


def _say_what_next(folder: Path, written: list[str]) -> None:
    say(f"{folder} holds {', '.join(written)}. Now:\n", "green")
    for command, why in (
        (f"cd {folder}", ""),
        ("posthouse run app", "the service; leave it running"),
        ("python publish.py", "in another terminal: places five orders"),
        ("posthouse status app", "does it add up?"),
    ):
        say(f"  {command:22} # {why}" if why else f"  {command}")


def _refuse_bad(name: str) -> None:
    if _NAME.fullmatch(name) and not keyword.iskeyword(name):
        return
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    better = re.sub(r"[^a-z0-9]+", "_", words).strip("_").lstrip("0123456789_") or "orders"
    better = f"{better}_service" if keyword.iskeyword(better) else better
    raise ConfigurationError(
        f"{name!r} cannot be the name of a service: it takes lower-case letters, digits and single underscores, a letter "
        f"first, and no word of Python's own. Did you mean {better!r}?"
    )


def _refuse_taken(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not empty: choose another name, or --directory")


def _write(name: str, folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    for template in sorted(
        resources.files("posthouse.cli").joinpath("templates/plain").iterdir(), key=lambda t: t.name
    ):
        file = template.name.removesuffix(SUFFIX)
        text = Template(template.read_text(encoding="utf-8")).substitute(name=name)
        (folder / file).write_text(text, encoding="utf-8")
        written.append(file)
    return written

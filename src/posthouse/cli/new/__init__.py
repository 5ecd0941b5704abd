"""`posthouse new`: a small service project that runs at once, or an application on PostgreSQL."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.new.kinds import KINDS, SHOP, Kind
from posthouse.cli.new.writing import names_in, write
from posthouse.cli.options import AsJson
from posthouse.cli.output import print_json, say
from posthouse.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def new(
    name: Annotated[str, typer.Argument(help="The service: lower-case letters, digits and underscores.")],
    postgres: Annotated[
        bool, typer.Option("--postgres", help="On PostgreSQL, with a compose file, a Dockerfile and tests there.")
    ] = False,
    fastapi: Annotated[bool, typer.Option("--fastapi", help="With FastAPI, SQLAlchemy and Alembic.")] = False,
    django: Annotated[bool, typer.Option("--django", help="With Django and its migrations.")] = False,
    flask: Annotated[bool, typer.Option("--flask", help="With Flask and SQLAlchemy.")] = False,
    directory: Annotated[Path, typer.Option(help="Where the project's folder is made.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a small service project that runs at once."""
    frameworks = [word for word, wanted in (("fastapi", fastapi), ("django", django), ("flask", flask)) if wanted]
    kind = _kind(name, postgres, frameworks)
    _refuse_bad(name)
    _refuse_ambiguous(name, kind)
    folder = directory / name
    _refuse_taken(folder)
    try:
        written = write(name, kind, folder)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {folder}: {error.strerror}") from error
    if as_json:
        print_json({"folder": str(folder), "files": written})
    else:
        _say_what_next(name, folder, kind, written)


def _kind(name: str, postgres: bool, frameworks: list[str]) -> Kind:
    if len(frameworks) > 1:
        raise ConfigurationError(
            f"--{' and --'.join(frameworks)}: an application has one framework, choose one of them"
        )
    if frameworks and not postgres:
        raise ConfigurationError(
            f"--{frameworks[0]} writes an application on PostgreSQL: say so with "
            f"`posthouse new {name} --postgres --{frameworks[0]}`"
        )
    return KINDS[frameworks[0] if frameworks else "postgres" if postgres else "plain"]


def _say_what_next(name: str, folder: Path, kind: Kind, written: list[str]) -> None:
    say(f"{folder} holds {', '.join(written)}. Now:\n", "green")
    say(f"  cd {folder}")
    for command, why in kind.steps:
        say(f"  {command.replace(SHOP, name):38} # {why}")


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


def _refuse_ambiguous(name: str, kind: Kind) -> None:
    """The name becomes that of a variable, and of a module: it must not be the name of anything else there."""
    if kind.renamed and (name in sys.stdlib_module_names or name in names_in(kind)):
        raise ConfigurationError(
            f"{name!r} is the name of something else in the code that would be written. Did you mean '{name}_service'?"
        )


def _refuse_taken(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not empty: choose another name, or --directory")

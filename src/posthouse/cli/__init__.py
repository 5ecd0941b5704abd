"""The command line: `posthouse run`, `status`, `held` and friends. `posthouse --help` lists them."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from posthouse.cli.verbs import Verbs
from posthouse.cli.words import spare_coercion

__all__ = ["app", "main"]

spare_coercion()
app = typer.Typer(
    name="posthouse",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # no other command should pay for it

        typer.echo(f"posthouse {version('posthouse')}")
        raise typer.Exit


@app.callback()
def posthouse(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The event backbone for Python services."""


def main() -> None:
    """The entry point. A terminal that lacks a character gets a question mark instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

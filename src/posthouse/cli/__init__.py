"""The command line: `posthouse run`, `status`, `held` and friends. `posthouse --help` lists them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from posthouse.cli import catalog, contract, db, flow, held, outbox, projection, registry, saga, schema, topology
from posthouse.cli.check import check
from posthouse.cli.demo import demo
from posthouse.cli.doctor import doctor
from posthouse.cli.group import Group
from posthouse.cli.new import new
from posthouse.cli.quickstart import quickstart
from posthouse.cli.run import run
from posthouse.cli.seek import seek
from posthouse.cli.status import status
from posthouse.cli.timers import timers
from posthouse.cli.topics import topics
from posthouse.cli.trace import trace

__all__ = ["app", "main"]

app = typer.Typer(
    name="posthouse",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posthouse {version('posthouse')}")
        raise typer.Exit


@app.callback()
def posthouse(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The event backbone for Python services."""


app.command()(demo)
app.command()(quickstart)
app.command()(new)
app.command()(run)
app.command()(status)
app.command()(doctor)
app.add_typer(held.app, name="held")
app.add_typer(outbox.app, name="outbox")
app.add_typer(saga.app, name="saga")
app.add_typer(projection.app, name="projection")
app.command()(timers)
app.command()(topics)
app.add_typer(catalog.app, name="catalog")
app.add_typer(schema.app, name="schema")
app.add_typer(contract.app, name="contract")
app.command()(check)
app.add_typer(flow.app, name="flow")
app.command()(trace)
app.add_typer(topology.app, name="topology")
app.command()(seek)
app.add_typer(db.app, name="db")
app.add_typer(registry.app, name="registry")


def main() -> None:
    """The entry point. A terminal that lacks a character gets a question mark instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

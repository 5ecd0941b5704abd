"""`posthouse held`: events that could not be applied, and what an operator may do with them."""

from __future__ import annotations

import typer

from posthouse.cli.held.deciding import quarantine, release, retry, skip
from posthouse.cli.held.editing import edit
from posthouse.cli.held.looking import export, list_held, show

app = typer.Typer(no_args_is_help=True, help="Look at events that could not be applied, and deal with them.")

app.command("list")(list_held)
for verb in (show, retry, skip, edit, release, quarantine, export):
    app.command()(verb)

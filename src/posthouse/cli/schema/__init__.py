"""`posthouse schema`: what a change of a schema does to those who read and write by it."""

from __future__ import annotations

import typer

from posthouse.cli.schema.check import check
from posthouse.cli.schema.diff import diff
from posthouse.cli.schema.retire import retire
from posthouse.cli.schema.versions import versions

app = typer.Typer(no_args_is_help=True, help="Compare schemas, and learn whom a change would break.")


@app.callback()
def schema() -> None:
    """Compare schemas, and learn whom a change would break."""


app.command()(check)
app.command()(diff)
app.command()(versions)
app.command()(retire)

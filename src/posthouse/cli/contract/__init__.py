"""`posthouse contract`: producers and consumers held to what they expect of each other."""

from __future__ import annotations

import typer

from posthouse.cli.contract.verifying import verify
from posthouse.cli.contract.writing import write

app = typer.Typer(no_args_is_help=True, help="Check what producers send against what consumers expect.")


@app.callback()
def contract() -> None:
    """Check what producers send against what consumers expect."""


app.command()(verify)
app.command()(write)

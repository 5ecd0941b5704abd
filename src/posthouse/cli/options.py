"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.")]
By = Annotated[
    str, typer.Option(help="Who says so, for the operators' log. Default: POSTHOUSE_OPERATOR, else login@host.")
]
Why = Annotated[str, typer.Option(help="Why, for the operators' log: see `posthouse actions`.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Prefix = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="Serve the names that a platform gave to some figures as well, beginning with this. "
        "Default: POSTHOUSE_METRICS_PREFIX.",
    ),
]

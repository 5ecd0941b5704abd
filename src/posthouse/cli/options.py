"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posthouse.local.tls import Files

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
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Speak TLS, with this certificate in PEM.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, where that is not in the same file.")]
TlsClientCa = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Let in those alone who have a certificate of this authority.")
]


def tls_files(cert: Path | None, key: Path | None, client_ca: Path | None) -> Files:
    return Files(*(None if path is None else str(path) for path in (client_ca, cert, key)))

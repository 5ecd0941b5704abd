"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from posthouse.local.tls import Files
from posthouse.operators import plain

AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.")]
By = Annotated[
    str,
    typer.Option(
        "--by",
        "--as",
        help="Who says so, for the operators' log. Default: POSTHOUSE_OPERATOR, else login@host.",
        callback=plain,  # jobs take a name that ends as those of a console for somebody who signed in
    ),
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
ProxyKeys = Annotated[str, typer.Option(metavar="URL", help="A proxy signs who asks: where its JSON Web Key Set is.")]
ProxyIssuer = Annotated[str, typer.Option(metavar="ISS", help="What its assertions say as `iss`.")]
ProxyAudience = Annotated[str, typer.Option(metavar="AUD", help="What they say as `aud`.")]
ProxyHeader = Annotated[str, typer.Option(metavar="NAME", help="The header that holds them.")]
PROXY_HEADER = "x-assertion"
RolesPath = Annotated[
    Path | None,
    typer.Option("--roles", metavar="FILE", help="Who may do what: rules in TOML (docs/console-access.md)."),
]


def unfit(
    *, issuer: str, proxy: str, roles: Path | None, of_issuer: Mapping[str, object], of_proxy: Mapping[str, object]
) -> list[str]:
    """What does not fit together of the options that say who asks; the last two are options by name that need the first two."""
    return [
        *(f"{given} is for --oidc-issuer" for given, value in of_issuer.items() if value and not issuer),
        *(f"{given} is for --proxy-keys" for given, value in of_proxy.items() if value and not proxy),
        *(
            f"{needs} needs --roles FILE, which says who may do what"
            for needs, value in (("--oidc-issuer", issuer), ("--proxy-keys", proxy))
            if value and not roles
        ),
    ]


def tls_files(cert: Path | None, key: Path | None, client_ca: Path | None) -> Files:
    return Files(*(None if path is None else str(path) for path in (client_ca, cert, key)))

"""What an `sqs:` URL may say."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, unquote

import msgspec
from aiobotocore.config import AioConfig

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.sqs.broker import SqsBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Tls, contradicts, proven


class SqsOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of SqsBroker, and TLS, which is on unless the endpoint says `http:`."""

    account: Annotated[str, msgspec.Meta(pattern="^[0-9]{12}$")] | None = None
    endpoint: str | None = None
    visibility: Annotated[int, msgspec.Meta(ge=3, le=43_200)] = 30
    poll: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0


def from_url(parts: SplitResult, clock: Clock) -> SqsBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options = options_of("sqs", said_in(parts), SqsOptions(), problems)
    if not parts.hostname:
        problems.append(f"{parts.geturl()!r} names no region: write sqs://eu-central-1")
    driver = credentials(parts) | secured(options, problems)
    if problems or not parts.hostname:
        raise ConfigurationError(*problems)
    return SqsBroker(
        parts.hostname,
        clock=clock,
        account=options.account,
        endpoint=options.endpoint,
        visibility=options.visibility,
        poll=options.poll,
        timeout=options.timeout,
        driver=driver,
    )


def credentials(parts: SplitResult) -> dict[str, object]:
    """Those of the URL; without them the driver finds its own."""
    if not parts.username or not parts.password:
        return {}
    return {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}


def secured(options: SqsOptions, problems: list[str]) -> dict[str, object]:
    """What the driver is told of TLS."""
    plain = (options.endpoint or "").startswith("http:")
    if contradicts(options, problems):
        return {}
    if plain and options.on:
        problems.append(f"sqs: endpoint={options.endpoint} is plain text, and tls asks for TLS: write https:")
    if options.tls is False and not plain:
        problems.append("sqs: tls=false needs an endpoint that begins with http: AWS takes no plain text")
    if not options.on or proven(options.files, problems) is None:
        return {}
    cert = (options.tls_cert, options.tls_key) if options.tls_key else options.tls_cert
    said = {"verify": options.tls_ca, "config": AioConfig(client_cert=cert) if cert else None}
    return {name: value for name, value in said.items() if value is not None}

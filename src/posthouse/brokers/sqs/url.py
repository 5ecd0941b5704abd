"""What an `sqs:` URL may say."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, unquote

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.sqs.broker import SqsBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError


class SqsOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of SqsBroker."""

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
        driver=credentials(parts),
    )


def credentials(parts: SplitResult) -> dict[str, object]:
    """Those of the URL; without them the driver finds its own."""
    if not parts.username or not parts.password:
        return {}
    return {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}

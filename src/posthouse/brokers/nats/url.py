"""What a `nats:` URL may say."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult

import msgspec

from posthouse.brokers.nats.broker import NatsBroker
from posthouse.brokers.options import options_of, said_in
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Tls, context_of


class NatsOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of NatsBroker, a credentials file, TLS, and the first word of the subjects on which
    it hears answers."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    retention: Annotated[float, msgspec.Meta(ge=1)] | None = None
    dedup: Annotated[float, msgspec.Meta(ge=1)] = 120.0
    sync: Literal["always", "default"] = "default"
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    credentials: str | None = None
    inbox: str | None = None


def from_url(parts: SplitResult, clock: Clock) -> NatsBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options = options_of("nats", said_in(parts), NatsOptions(), problems)
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no server: write nats://host:4222")
    given = {
        "user_credentials": options.credentials,
        "inbox_prefix": None if options.inbox is None else options.inbox.encode(),
        "tls": context_of(options, problems),
    }
    if problems:
        raise ConfigurationError(*problems)
    return NatsBroker(
        f"nats://{parts.netloc}",
        clock=clock,
        partitions=options.partitions,
        replicas=options.replicas,
        retention=options.retention,
        dedup=options.dedup,
        sync=options.sync,
        timeout=options.timeout,
        driver={name: value for name, value in given.items() if value is not None},
    )

"""What a `rabbitmq:` URL may say."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.rabbitmq.broker import RabbitmqBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Tls, context_of


class RabbitmqOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of RabbitmqBroker, and TLS."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    unread: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    heartbeat: Annotated[int, msgspec.Meta(ge=1, le=600)] = 5
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    settle: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    management: Annotated[str, msgspec.Meta(pattern="^https?://[^/]")] | None = None


def from_url(parts: SplitResult, clock: Clock) -> RabbitmqBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options = options_of("rabbitmq", said_in(parts), RabbitmqOptions(), problems)
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no server: write rabbitmq://user:word@host:5672/vhost")
    if options.partitions.bit_count() != 1:
        problems.append(f"partitions={options.partitions} is not a power of two: write 8 or 16")
    tls = context_of(options, problems)
    if problems:
        raise ConfigurationError(*problems)
    return RabbitmqBroker(
        parts._replace(scheme="amqp" if tls is None else "amqps", query="").geturl(),
        clock=clock,
        partitions=options.partitions,
        replicas=options.replicas,
        unread=options.unread,
        heartbeat=options.heartbeat,
        timeout=options.timeout,
        settle=options.settle,
        management=options.management,
        driver={} if tls is None else {"context": tls},
    )

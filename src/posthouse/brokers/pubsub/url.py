"""What a `pubsub:` URL may say."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import SplitResult

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.pubsub.broker import PubSubBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError


class PubSubOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of PubSubBroker."""

    lease: Annotated[int, msgspec.Meta(ge=10, le=600)] = 60
    retention: Annotated[float, msgspec.Meta(ge=600, le=31 * 86_400)] = 7 * 86_400.0
    dead_letters: str = "posthouse.lost"
    endpoint: str | None = None
    emulator: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0


def from_url(parts: SplitResult, clock: Clock) -> PubSubBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options = options_of("pubsub", said_in(parts), PubSubOptions(), problems)
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no project: write pubsub://my-project")
    if problems:
        raise ConfigurationError(*problems)
    return PubSubBroker(
        parts.netloc,
        clock=clock,
        lease=options.lease,
        retention=options.retention,
        dead_letters=options.dead_letters,
        endpoint=options.endpoint,
        emulator=options.emulator or os.environ.get("PUBSUB_EMULATOR_HOST"),  # as Google's own clients do
        timeout=options.timeout,
    )

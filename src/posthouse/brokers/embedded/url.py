"""What an `embedded:` URL may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, unquote

import msgspec

from posthouse.brokers.embedded.broker import EmbeddedBroker
from posthouse.brokers.options import options_of, said_in
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.sqlite import Synchronous


class EmbeddedOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of EmbeddedBroker, but for `single_host`, which is for those who choose a
    broker: all processes run on this host, and none ever will on another."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    synchronous: Synchronous = "FULL"
    single_host: bool = False


def from_url(parts: SplitResult, clock: Clock) -> EmbeddedBroker:
    """Raises ConfigurationError with every problem."""
    path, problems = unquote(parts.path.removeprefix("/")), []
    if parts.netloc or not path:
        problems.append(
            f"{parts.geturl()!r} names no file: write embedded:///log.db (relative) or embedded:////var/lib/log.db"
        )
    options = options_of("embedded", said_in(parts), EmbeddedOptions(), problems)
    if problems:
        raise ConfigurationError(*problems)
    return EmbeddedBroker(
        Path(path),
        clock=clock,
        retention=options.retention,
        partitions=options.partitions,
        synchronous=options.synchronous,
    )

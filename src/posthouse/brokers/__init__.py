"""Where frames go: a URL names the broker, `open_broker` makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.sqlite import Synchronous

__all__ = ["open_broker"]

SCHEMES = ("embedded", "memory")


class EmbeddedOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of an embedded URL; each is a parameter of EmbeddedBroker."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    synchronous: Synchronous = "FULL"


def open_broker(url: str, *, clock: Clock) -> Broker:
    """The broker that the URL names; it connects when it is first used.

    `embedded:///log.db` is relative to the working directory, `embedded:////var/lib/log.db` is absolute, and
    `?retention=86400&partitions=4` sets options of EmbeddedBroker. `memory://` is for tests.
    Raises ConfigurationError with every problem of the URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "embedded":
        return _embedded(parts, clock)
    if parts.scheme == "memory":
        return MemoryBroker(clock=clock)
    raise ConfigurationError(f"no broker is called {parts.scheme!r} in {url!r}.{did_you_mean(parts.scheme, SCHEMES)}")


def _embedded(parts: SplitResult, clock: Clock) -> EmbeddedBroker:
    path, problems = unquote(parts.path.removeprefix("/")), []
    if parts.netloc or not path:
        problems.append(
            f"{parts.geturl()!r} names no file: write embedded:///log.db (relative) or embedded:////var/lib/log.db"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = EmbeddedOptions.__struct_fields__
    problems += [
        f"the embedded broker has no option {name!r}.{did_you_mean(name, known)}" for name in given if name not in known
    ]
    options = EmbeddedOptions()
    try:
        options = msgspec.convert(given, EmbeddedOptions, strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"an option of {parts.geturl()!r} does not fit: {error}")
    if problems:
        raise ConfigurationError(*problems)
    return EmbeddedBroker(
        Path(path),
        clock=clock,
        retention=options.retention,
        partitions=options.partitions,
        synchronous=options.synchronous,
    )

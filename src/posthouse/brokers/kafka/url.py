"""What a `kafka:` URL may say."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult

import msgspec

from posthouse.brokers.kafka.broker import KafkaBroker
from posthouse.brokers.options import options_of, said_in
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError


class KafkaOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of KafkaBroker. Names with a dot are the driver's."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=15)] = 1
    min_insync: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    retention: Annotated[float, msgspec.Meta(ge=1)] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    lease: Annotated[float, msgspec.Meta(ge=1)] = 10.0


def from_url(parts: SplitResult, clock: Clock) -> KafkaBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    said = said_in(parts)
    driver = {name: said.pop(name) for name in tuple(said) if "." in name}
    options = options_of("kafka", said, KafkaOptions(), problems)
    if not parts.netloc or "@" in parts.netloc:
        problems.append(
            f"{parts._replace(query='').geturl()!r} names no servers: write kafka://a:9092,b:9092 and "
            "sasl.username=…&sasl.password=… behind the `?`"
        )
    if problems:
        raise ConfigurationError(*problems)
    return KafkaBroker(
        parts.netloc,
        clock=clock,
        partitions=options.partitions,
        replicas=options.replicas,
        min_insync=options.min_insync,
        retention=options.retention,
        timeout=options.timeout,
        lease=options.lease,
        driver=driver,
    )

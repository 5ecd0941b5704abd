"""What a `redis:` or `rediss:` URL may say."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult, urlencode

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.redis.broker import RedisBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError

DRIVER_OPTIONS = {
    *("username", "password", "db", "client_name", "max_connections", "health_check_interval", "socket_keepalive"),
    *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
"""What else it may say; it is passed on as it is."""


class RedisOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of RedisBroker."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    retention: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    sync: Literal["always", "default"] = "default"
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0


def from_url(parts: SplitResult, clock: Clock) -> RedisBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    said = said_in(parts)
    driver = {name: said.pop(name) for name in DRIVER_OPTIONS & said.keys()}
    options = options_of("redis", said, RedisOptions(), problems, also=DRIVER_OPTIONS)
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no server: write redis://host:6379")
    if problems:
        raise ConfigurationError(*problems)
    return RedisBroker(
        parts._replace(query=urlencode(driver)).geturl(),
        clock=clock,
        partitions=options.partitions,
        retention=options.retention,
        sync=options.sync,
        timeout=options.timeout,
    )

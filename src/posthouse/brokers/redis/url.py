"""What a `redis:` or `rediss:` URL may say."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult, urlencode

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.redis.broker import RedisBroker
from posthouse.brokers.redis.client import TlsConnection
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Files, Names, Tls, context_of, proven

DRIVER_OPTIONS = {
    *("username", "password", "db", "client_name", "max_connections", "health_check_interval", "socket_keepalive"),
    *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
"""What else it may say; it is passed on as it is."""


FILES = Names("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class RedisOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of RedisBroker, and TLS."""

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
    tls = context_of(_asked(parts, options, driver, problems), problems)
    if problems:
        raise ConfigurationError(*problems)
    return RedisBroker(
        parts._replace(scheme=parts.scheme if tls is None else "redis", query=urlencode(driver)).geturl(),
        clock=clock,
        partitions=options.partitions,
        retention=options.retention,
        sync=options.sync,
        timeout=options.timeout,
        driver={} if tls is None else {"connection_class": TlsConnection, "tls": tls},
    )


def _asked(parts: SplitResult, options: Tls, driver: dict[str, str], problems: list[str]) -> Tls:
    """TLS as our words say it. In the driver's own words it is the driver's; the files are looked at all the same."""
    theirs = [name for name in driver if name.startswith("ssl_")]
    ours = options.on or options.tls is not None
    if ours and theirs:
        problems.append(f"the URL says {theirs[0]} and also tls, which mean the same: leave one out")
    if parts.scheme == "rediss" and options.tls is False:
        problems.append("rediss:// is TLS, and tls=false is plain text: leave one out")
    if theirs and not ours:
        proven(Files(*(driver.get(name) for name in FILES)), problems, FILES)
        if parts.scheme != "rediss":
            problems.append(f"{theirs[0]} is for TLS: write rediss://")
        return Tls()
    if parts.scheme == "rediss" and options.tls is None:
        return Tls(tls=True, tls_ca=options.tls_ca, tls_cert=options.tls_cert, tls_key=options.tls_key)
    return Tls(*(getattr(options, name) for name in Tls.__struct_fields__))

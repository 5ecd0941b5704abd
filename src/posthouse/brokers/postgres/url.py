"""What a `postgresql:` URL may say."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult, urlencode

import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.postgres.broker import PostgresBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Tls, with_libpq_words
from posthouse.local.url import joined

DRIVER_OPTIONS = {
    *("host", "port", "user", "password", "passfile", "service", "servicefile", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "application_name"),
}
"""What else it may say; it is passed on as it is."""


class PostgresOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`; each is a parameter of PostgresBroker."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    schema: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = "posthouse_log"
    pooler: Literal["transaction"] | None = None
    connections: Annotated[int, msgspec.Meta(ge=2, le=100)] = 4


def from_url(parts: SplitResult, clock: Clock) -> PostgresBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    said_in(parts)
    parts = with_libpq_words(parts, problems)
    said = said_in(parts)
    driver = {name: said.pop(name) for name in DRIVER_OPTIONS & said.keys()}
    options = options_of(
        "postgresql", said, PostgresOptions(), problems, also=(*DRIVER_OPTIONS, *Tls.__struct_fields__)
    )
    if problems:
        raise ConfigurationError(*problems)
    return PostgresBroker(
        joined(parts._replace(query=urlencode(driver))),
        clock=clock,
        retention=options.retention,
        partitions=options.partitions,
        schema=options.schema,
        pooled=options.pooler == "transaction",
        connections=options.connections,
    )

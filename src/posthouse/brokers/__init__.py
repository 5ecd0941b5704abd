"""Where frames go: a URL names the broker, `open_broker` makes it."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec

from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.sqlite import Synchronous

__all__ = ["open_broker"]

SCHEMES = ("embedded", "memory", "nats", "postgresql")


class EmbeddedOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of an embedded URL; each is a parameter of EmbeddedBroker."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    synchronous: Synchronous = "FULL"


class NatsOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a NATS URL: parameters of NatsBroker, a credentials file, and TLS with the system's
    authorities or those of a file."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    retention: Annotated[float, msgspec.Meta(ge=1)] | None = None
    dedup: Annotated[float, msgspec.Meta(ge=1)] = 120.0
    sync: Literal["always", "default"] = "default"
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    credentials: str | None = None
    tls: bool = False
    tls_ca: str | None = None


class PostgresOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a PostgreSQL URL; each is a parameter of PostgresBroker."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    schema: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = "posthouse_log"
    pooler: Literal["transaction"] | None = None
    connections: Annotated[int, msgspec.Meta(ge=2, le=100)] = 4


DRIVER_OPTIONS = {
    *("host", "port", "dbname", "user", "password", "passfile", "service", "servicefile", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "application_name"),
}
"""What else a PostgreSQL URL may say; it is passed on as it is."""

Options = TypeVar("Options", EmbeddedOptions, NatsOptions, PostgresOptions)


def open_broker(url: str, *, clock: Clock) -> Broker:
    """The broker that the URL names; it connects when it is first used.

    `embedded:///log.db` is relative to the working directory, `embedded:////var/lib/log.db` is absolute, and
    `?retention=86400&partitions=4` sets options of EmbeddedBroker. `postgresql://user@host/db?pooler=transaction` takes
    options of PostgresBroker and of the driver (`sslmode` …). `nats://a:4222,b:4222?replicas=3` names servers of one
    cluster and options of NatsBroker. `memory://` is for tests.
    Raises ConfigurationError with every problem of the URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "embedded":
        return _embedded(parts, clock)
    if parts.scheme == "memory":
        return MemoryBroker(clock=clock)
    if parts.scheme == "nats":
        return _nats(parts, clock)
    if parts.scheme == "postgresql":
        return _postgres(parts, clock)
    raise ConfigurationError(f"no broker is called {parts.scheme!r} in {url!r}.{did_you_mean(parts.scheme, SCHEMES)}")


def _embedded(parts: SplitResult, clock: Clock) -> EmbeddedBroker:
    path, problems = unquote(parts.path.removeprefix("/")), []
    if parts.netloc or not path:
        problems.append(
            f"{parts.geturl()!r} names no file: write embedded:///log.db (relative) or embedded:////var/lib/log.db"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    options = _options("embedded", given, EmbeddedOptions(), problems)
    if problems:
        raise ConfigurationError(*problems)
    return EmbeddedBroker(
        Path(path),
        clock=clock,
        retention=options.retention,
        partitions=options.partitions,
        synchronous=options.synchronous,
    )


def _nats(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.nats import NatsBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(f"a nats:// broker needs nats-py ({error}): pip install 'posthouse[nats]'") from error
    problems: list[str] = []
    options = _options("nats", dict(parse_qsl(parts.query, keep_blank_values=True)), NatsOptions(), problems)
    driver: dict[str, object] = {}
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no server: write nats://host:4222")
    if options.credentials is not None:
        driver["user_credentials"] = options.credentials
    if options.tls or options.tls_ca is not None:
        try:
            driver["tls"] = ssl.create_default_context(cafile=options.tls_ca)
        except OSError as error:
            problems.append(f"tls_ca {options.tls_ca!r} cannot be used: {error}")
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
        driver=driver,
    )


def _postgres(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.postgres import PostgresBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"a postgresql:// broker needs asyncpg ({error}): pip install 'posthouse[postgres]'"
        ) from error
    problems: list[str] = []
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    driver = {name: given.pop(name) for name in DRIVER_OPTIONS & given.keys()}
    options = _options("postgresql", given, PostgresOptions(), problems, also=DRIVER_OPTIONS)
    if problems:
        raise ConfigurationError(*problems)
    return PostgresBroker(
        parts._replace(query=urlencode(driver)).geturl(),
        clock=clock,
        retention=options.retention,
        partitions=options.partitions,
        schema=options.schema,
        pooled=options.pooler == "transaction",
        connections=options.connections,
    )


def _options(
    scheme: str, given: dict[str, str], default: Options, problems: list[str], also: Iterable[str] = ()
) -> Options:
    """The options as given, or the default when a problem was found."""
    known: tuple[str, ...] = default.__struct_fields__
    problems += [
        f"the {scheme} broker has no option {name!r}.{did_you_mean(name, (*known, *also))}"
        for name in given
        if name not in known
    ]
    try:
        return msgspec.convert(given, type(default), strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"an option of the {scheme} broker's URL does not fit: {error}")
        return default

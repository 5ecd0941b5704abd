"""Where frames go: a URL names the broker, `open_broker` makes it."""

from __future__ import annotations

import os
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

SCHEMES = ("embedded", "kafka", "memory", "nats", "postgresql", "pubsub", "rabbitmq", "redis", "rediss", "sqs")


class EmbeddedOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of an embedded URL; each is a parameter of EmbeddedBroker."""

    retention: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    synchronous: Synchronous = "FULL"


class KafkaOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a Kafka URL; each is a parameter of KafkaBroker. Names with a dot are the driver's."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=15)] = 1
    min_insync: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    retention: Annotated[float, msgspec.Meta(ge=1)] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    lease: Annotated[float, msgspec.Meta(ge=1)] = 10.0


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


class PubSubOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a Pub/Sub URL; each is a parameter of PubSubBroker."""

    lease: Annotated[int, msgspec.Meta(ge=10, le=600)] = 60
    retention: Annotated[float, msgspec.Meta(ge=600, le=31 * 86_400)] = 7 * 86_400.0
    dead_letters: str = "posthouse.lost"
    endpoint: str | None = None
    emulator: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0


class RabbitmqOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a RabbitMQ URL: parameters of RabbitmqBroker, and TLS with the system's authorities or
    those of a file."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    unread: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    heartbeat: Annotated[int, msgspec.Meta(ge=1, le=600)] = 5
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    settle: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    tls: bool = False
    tls_ca: str | None = None


class RedisOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of a Redis URL; each is a parameter of RedisBroker."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    retention: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    sync: Literal["always", "default"] = "default"
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class SqsOptions(msgspec.Struct, frozen=True):
    """What may follow the `?` of an SQS URL; each is a parameter of SqsBroker."""

    account: Annotated[str, msgspec.Meta(pattern="^[0-9]{12}$")] | None = None
    endpoint: str | None = None
    visibility: Annotated[int, msgspec.Meta(ge=3, le=43_200)] = 30
    poll: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0


DRIVER_OPTIONS = {
    *("host", "port", "dbname", "user", "password", "passfile", "service", "servicefile", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "application_name"),
}
"""What else a PostgreSQL URL may say; it is passed on as it is."""

REDIS_DRIVER_OPTIONS = {
    *("username", "password", "db", "client_name", "max_connections", "health_check_interval", "socket_keepalive"),
    *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
"""What else a Redis URL may say; it is passed on as it is."""

Options = TypeVar(
    "Options",
    EmbeddedOptions,
    KafkaOptions,
    NatsOptions,
    PostgresOptions,
    PubSubOptions,
    RabbitmqOptions,
    RedisOptions,
    SqsOptions,
)


def open_broker(url: str, *, clock: Clock) -> Broker:
    """The broker that the URL names; it connects when it is first used.

    `embedded:///log.db` is relative to the working directory, `embedded:////var/lib/log.db` is absolute, and
    `?retention=86400&partitions=4` sets options of EmbeddedBroker. `postgresql://user@host/db?pooler=transaction` takes
    options of PostgresBroker and of the driver (`sslmode` …). `nats://a:4222,b:4222?replicas=3` names servers of one
    cluster and options of NatsBroker. `redis://user:word@host:6379/0?retention=3600` takes options of RedisBroker and of
    the driver; `rediss://` is the same through TLS. `sqs://eu-central-1` is SNS and SQS of a region, with options of SqsBroker.
    `pubsub://project?endpoint=europe-west1-pubsub.googleapis.com` is a Google Cloud project with options of PubSubBroker.
    `rabbitmq://user:word@host:5672/vhost?tls=true` takes options of RabbitmqBroker.
    `kafka://a:9092,b:9092?replicas=3&security.protocol=SSL` names servers of one cluster, options of KafkaBroker and, with
    dots, of the driver. `memory://` is for tests.
    Raises ConfigurationError with every problem of the URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "embedded":
        return _embedded(parts, clock)
    if parts.scheme == "kafka":
        return _kafka(parts, clock)
    if parts.scheme == "memory":
        return MemoryBroker(clock=clock)
    if parts.scheme == "nats":
        return _nats(parts, clock)
    if parts.scheme == "postgresql":
        return _postgres(parts, clock)
    if parts.scheme == "pubsub":
        return _pubsub(parts, clock)
    if parts.scheme in ("redis", "rediss"):
        return _redis(parts, clock)
    if parts.scheme == "sqs":
        return _sqs(parts, clock)
    if parts.scheme == "rabbitmq":
        return _rabbitmq(parts, clock)
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


def _kafka(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.kafka import KafkaBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"a kafka:// broker needs confluent-kafka ({error}): pip install 'posthouse[kafka]'"
        ) from error
    problems: list[str] = []
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    driver = {name: given.pop(name) for name in tuple(given) if "." in name}
    options = _options("kafka", given, KafkaOptions(), problems)
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


def _pubsub(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.pubsub import PubSubBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"a pubsub:// broker needs google-cloud-pubsub ({error}): pip install 'posthouse[pubsub]'"
        ) from error
    problems: list[str] = []
    options = _options("pubsub", dict(parse_qsl(parts.query, keep_blank_values=True)), PubSubOptions(), problems)
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


def _redis(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.redis import RedisBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"a redis:// broker needs redis-py ({error}): pip install 'posthouse[redis]'"
        ) from error
    problems: list[str] = []
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    driver = {name: given.pop(name) for name in REDIS_DRIVER_OPTIONS & given.keys()}
    options = _options("redis", given, RedisOptions(), problems, also=REDIS_DRIVER_OPTIONS)
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


def _sqs(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.sqs import SqsBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"an sqs:// broker needs aiobotocore ({error}): pip install 'posthouse[sqs]'"
        ) from error
    problems: list[str] = []
    options = _options("sqs", dict(parse_qsl(parts.query, keep_blank_values=True)), SqsOptions(), problems)
    if not parts.hostname:
        problems.append(f"{parts.geturl()!r} names no region: write sqs://eu-central-1")
    if problems or not parts.hostname:
        raise ConfigurationError(*problems)
    driver: dict[str, object] = {}
    if parts.username and parts.password:
        driver = {
            "aws_access_key_id": unquote(parts.username),
            "aws_secret_access_key": unquote(parts.password),
        }
    return SqsBroker(
        parts.hostname,
        clock=clock,
        account=options.account,
        endpoint=options.endpoint,
        visibility=options.visibility,
        poll=options.poll,
        timeout=options.timeout,
        driver=driver,
    )


def _rabbitmq(parts: SplitResult, clock: Clock) -> Broker:
    try:
        from posthouse.brokers.rabbitmq import RabbitmqBroker  # the driver is an optional dependency
    except ImportError as error:
        raise ConfigurationError(
            f"a rabbitmq:// broker needs aiormq ({error}): pip install 'posthouse[rabbitmq]'"
        ) from error
    problems: list[str] = []
    options = _options("rabbitmq", dict(parse_qsl(parts.query, keep_blank_values=True)), RabbitmqOptions(), problems)
    driver: dict[str, object] = {}
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no server: write rabbitmq://user:word@host:5672/vhost")
    if options.partitions.bit_count() != 1:
        problems.append(f"partitions={options.partitions} is not a power of two: write 8 or 16")
    if options.tls or options.tls_ca is not None:
        try:
            driver["context"] = ssl.create_default_context(cafile=options.tls_ca)
        except OSError as error:
            problems.append(f"tls_ca {options.tls_ca!r} cannot be used: {error}")
    if problems:
        raise ConfigurationError(*problems)
    return RabbitmqBroker(
        parts._replace(scheme="amqps" if driver else "amqp", query="").geturl(),
        clock=clock,
        partitions=options.partitions,
        replicas=options.replicas,
        unread=options.unread,
        heartbeat=options.heartbeat,
        timeout=options.timeout,
        settle=options.settle,
        driver=driver,
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

"""Where frames go: a URL names the broker, `open_broker` makes it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple
from urllib.parse import SplitResult

from posthouse.broker import Broker
from posthouse.brokers.options import said_in
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.url import split

__all__ = ["is_for_one_host", "open_broker"]

FromUrl = Callable[[SplitResult, Clock], Broker]


class Adapter(NamedTuple):
    """`module` has the `from_url` of one kind of broker, and is imported when a URL asks for it: its driver may be an optional
    dependency, which `needs` names and `extra` brings. What a `local` one stores is seen on one host only."""

    module: str
    needs: str = ""
    extra: str = ""
    local: bool = False


REDIS = Adapter("redis.url", "a redis:// broker needs redis-py", "redis")
ADAPTERS = {
    "embedded": Adapter("embedded.url", local=True),
    "kafka": Adapter("kafka.url", "a kafka:// broker needs confluent-kafka", "kafka"),
    "memory": Adapter("memory", local=True),
    "nats": Adapter("nats.url", "a nats:// broker needs nats-py", "nats"),
    "postgresql": Adapter("postgres.url", "a postgresql:// broker needs asyncpg", "postgres"),
    "pubsub": Adapter("pubsub.url", "a pubsub:// broker needs google-cloud-pubsub", "pubsub"),
    "rabbitmq": Adapter("rabbitmq.url", "a rabbitmq:// broker needs aiormq", "rabbitmq"),
    "redis": REDIS,
    "rediss": REDIS,
    "sqs": Adapter("sqs.url", "an sqs:// broker needs aiobotocore", "sqs"),
}


def open_broker(url: str, *, clock: Clock) -> Broker:
    """The broker that the URL names; it connects when it is first used.

    `embedded:///log.db` is relative to the working directory, `embedded:////var/lib/log.db` is absolute, and
    `?retention=86400&partitions=4` sets options of EmbeddedBroker. `postgresql://user@host/db?pooler=transaction` takes
    options of PostgresBroker and of the driver (`sslmode` …); `django://default` is the database of that name in Django's
    DATABASES. `nats://a:4222,b:4222?replicas=3` names servers of one
    cluster and options of NatsBroker. `redis://user:word@host:6379/0?retention=3600` takes options of RedisBroker and of
    the driver; `rediss://` is the same through TLS. `sqs://eu-central-1` is SNS and SQS of a region, with options of SqsBroker.
    `pubsub://project?endpoint=europe-west1-pubsub.googleapis.com` is a Google Cloud project with options of PubSubBroker.
    `rabbitmq://user:word@host:5672/vhost?tls=true` takes options of RabbitmqBroker.
    `kafka://a:9092,b:9092?replicas=3&security.protocol=SSL` names servers of one cluster, options of KafkaBroker and, with
    dots, of the driver. `memory://` is for tests.
    Raises ConfigurationError with every problem of the URL.
    """
    parts = split(url)
    if parts.scheme == "django":
        from posthouse.local.django import database_of

        parts = database_of(parts)
    adapter = ADAPTERS.get(parts.scheme)
    if adapter is None:
        raise ConfigurationError(_no_broker(parts.scheme, url))
    return _from_url(adapter)(parts, clock)


def is_for_one_host(url: str) -> bool:
    """Whether it names a broker that one host alone sees, and does not say `single_host=true`: that all processes run there."""
    parts = split(url)
    adapter = ADAPTERS.get(parts.scheme)
    return adapter is not None and adapter.local and said_in(parts).get("single_host") not in ("true", "1")


def check_broker(url: str) -> None:
    """Raise ConfigurationError unless there is such a kind of broker; nothing is opened."""
    scheme = split(url).scheme
    if scheme not in (*ADAPTERS, "django"):
        raise ConfigurationError(_no_broker(scheme, url))


def _no_broker(scheme: str, url: str) -> str:
    if not scheme or "://" not in url:
        return (
            f"{url!r} is no URL of a broker: write nats://host:4222, postgresql://user@host/shop or embedded:///log.db"
        )
    if scheme == "sqlite":
        return "sqlite:// is a store; the broker in a file is embedded:///log.db"
    if scheme in ("amqp", "amqps", "rabbitmqs"):
        tls = "" if scheme == "amqp" else "?tls=true"
        return f"{scheme}:// is RabbitMQ: write rabbitmq://user:password@host:567{1 if tls else 2}/vhost{tls}"
    if scheme == "tls":
        return "tls:// is NATS: write nats://host:4222?tls=true"
    return f"no broker is called {scheme!r} in {url!r}.{did_you_mean(scheme, [*ADAPTERS, 'django'])}"


def _from_url(adapter: Adapter) -> FromUrl:
    try:
        found: FromUrl = import_module(f"{__name__}.{adapter.module}").from_url
    except ImportError as error:
        if not adapter.extra:
            raise
        raise ConfigurationError(f"{adapter.needs} ({error}): pip install 'posthouse[{adapter.extra}]'") from error
    return found

"""Where the store is: a URL names the database, `open_store` makes it."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode

import msgspec

from posthouse.clock import Clock, SystemClock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.tls import Tls, with_libpq_words
from posthouse.local.url import joined, split
from posthouse.store import Store
from posthouse.stores.options import options_of

__all__ = ["open_store"]

FOREIGN = {
    "mysql": "MySQL", "mariadb": "MariaDB", "mssql": "SQL Server", "oracle": "Oracle", "mongodb": "MongoDB",
    "mongodb+srv": "MongoDB", "cassandra": "Cassandra", "duckdb": "DuckDB",
}  # fmt: skip
"""Databases that people ask for."""
BROKERS = ("amqp", "embedded", "kafka", "memory", "nats", "pubsub", "rabbitmq", "redis", "rediss", "sqs")
SCHEMES = ("sqlite", "postgresql", "django")


class PostgresOptions(msgspec.Struct, frozen=True):
    """What of ours may follow the `?` of a PostgreSQL URL; each is a parameter of PostgresStore."""

    schema: Annotated[str, msgspec.Meta(pattern="^[a-z_][a-z0-9_]{0,62}$")] = "posthouse"
    writers: Annotated[int, msgspec.Meta(ge=1)] = 8
    shards: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    idempotency_window: Annotated[float, msgspec.Meta(gt=0)] = 7 * 86_400.0
    patience: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    pooler: Literal["none", "session", "transaction"] = "none"
    listen_url: str | None = None
    durable: bool = True
    wal_keep: Annotated[int, msgspec.Meta(gt=0)] = 2**30
    isolation: bool = False
    runtime_url: str | None = None


DRIVER_OPTIONS = (
    "application_name", "host", "options", "passfile", "password", "port", "sslcert", "sslcrl", "sslkey",
    "sslmode", "sslpassword", "sslrootcert", "sslnegotiation", "target_session_attrs", "user",
)  # fmt: skip
"""What PostgreSQL's own URLs may say; passed on to the driver as it is."""


def open_store(url: str, *, clock: Clock) -> Store:
    """The store that the URL names; it connects when it is first used.

    `sqlite:///shop.db` is relative to the working directory, `sqlite:////var/lib/shop.db` is absolute, `sqlite://` is
    in memory, and `?synchronous=NORMAL&shards=16` sets options of SqliteStore. `postgresql://user@host/shop?schema=events`
    is a PostgreSQL database, whose own options (`sslmode` and the like) may stand there too; `django://default?schema=events` is
    the one of that name in Django's DATABASES, as they are now. Raises ConfigurationError
    with every problem of the URL.
    """
    parts = split(url)
    if parts.scheme == "django":
        from posthouse.local.django import database_of

        parts = database_of(parts)
    if parts.scheme == "sqlite":
        from posthouse.stores.sqlite.url import from_url  # every adapter is imported when a URL asks for it

        return from_url(parts, clock)
    if parts.scheme in ("postgresql", "postgres"):
        return _postgres(parts, clock)
    raise ConfigurationError(_no_store(parts.scheme, url))


def check_store(url: str) -> None:
    """Raise ConfigurationError unless there is such a kind of store; nothing is opened."""
    scheme = split(url).scheme
    if scheme not in (*SCHEMES, "postgres"):
        raise ConfigurationError(_no_store(scheme, url))


def _no_store(scheme: str, url: str) -> str:
    if not scheme or "://" not in url:
        return f"{url!r} is no URL of a store: write sqlite:///shop.db for a file, or postgresql://user@host/shop"
    if scheme in FOREIGN:
        return f"no store is in {FOREIGN[scheme]}: events are kept in your own database, which is PostgreSQL or SQLite here"
    if scheme in BROKERS:
        return f"{scheme}:// is a broker, not a store: give it as broker=…; a store is sqlite:/// or postgresql://"
    return f"no store is called {scheme!r} in {url!r}.{did_you_mean(scheme.partition('+')[0], SCHEMES)}"


def _postgres(parts: SplitResult, clock: Clock) -> Store:
    problems: list[str] = []
    parts = with_libpq_words(parts, problems)
    options = options_of(parts, PostgresOptions, "PostgreSQL", problems, also=(*DRIVER_OPTIONS, *Tls.__struct_fields__))
    others = {name: _also(getattr(options, name), problems) for name in ("listen_url", "runtime_url")}
    try:
        from posthouse.stores.postgres import PostgresStore
    except ImportError:
        problems.append("PostgreSQL needs asyncpg: pip install 'posthouse[postgres]'")
    if problems:
        raise ConfigurationError(*problems)
    rest = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in DRIVER_OPTIONS])
    return PostgresStore(
        joined(parts._replace(query=rest)),
        clock=None if isinstance(clock, SystemClock) else clock,  # the database's clock is better than this machine's
        schema=options.schema,
        writers=options.writers,
        shards=options.shards,
        idempotency_window=options.idempotency_window,
        patience=options.patience,
        pooler=options.pooler,
        listen_url=others["listen_url"],
        durable=options.durable,
        wal_keep=options.wal_keep,
        isolation=options.isolation,
        runtime_url=others["runtime_url"],
    )


def _also(url: str | None, problems: list[str]) -> str | None:
    """Another way to the same database, which says TLS for itself."""
    return None if url is None else joined(with_libpq_words(split(url), problems))

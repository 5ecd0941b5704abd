"""A URL whose password was not escaped is refused in words that do not show it."""

from __future__ import annotations

import psycopg
import pytest

from posthouse.brokers import open_broker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.local.url import joined, split
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.scratch import server_of

SECRET = "S3cret"


@pytest.mark.parametrize("sign", list("/?#@[ "))
@pytest.mark.parametrize("word", ["pg{sign}S3cret", "12{sign}S3cret", "{sign}S3cret", "S3cret{sign}"])
def test_a_password_that_was_not_escaped_is_refused_and_not_shown(sign: str, word: str) -> None:
    password = word.format(sign=sign)
    shown = []
    try:
        open_store(f"postgresql://app:{password}@127.0.0.1:5432/market", clock=SystemClock())
    except ConfigurationError as refused:
        shown = [str(refused), *refused.problems]
    try:
        open_broker(f"nats://app:{password}@127.0.0.1:4222", clock=SystemClock())
    except ConfigurationError as refused:
        shown += [str(refused), *refused.problems]
    assert shown or sign == " ", "a blank alone can be told from everything else"
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize(
    ("url", "twice"),
    [
        ("postgresql://me@db/shop?dbname=other", "dbname"),
        ("postgresql://me@db/shop?host=elsewhere", "host"),
        ("postgresql://me@db/shop?port=6432", "port"),
        ("postgresql://me@db/shop?user=you", "user"),
        ("postgresql://me:word@db/shop?password=other", "password"),
    ],
)
def test_a_place_that_is_said_twice_is_refused(url: str, twice: str) -> None:
    """asyncpg takes what stands before the `?`, libpq what stands behind it: one process would work in two databases."""
    for opened in (
        lambda: open_store(url, clock=SystemClock()),
        lambda: open_broker(url, clock=SystemClock()),
        lambda: PostgresStore(url),
        lambda: server_of(url),
    ):
        with pytest.raises(ConfigurationError, match=f"names its {twice} behind the"):
            opened()


@pytest.mark.parametrize(
    ("url", "the_same"),
    [
        ("postgresql:///?dbname=shop&host=/tmp", "postgresql:///shop?host=%2Ftmp"),
        ("postgresql+asyncpg://me@db?dbname=a%2Fb", "postgresql://me@db/a%2Fb"),
        ("postgresql:///?host=/tmp", "postgresql:///?host=/tmp"),
        ("postgresql://me@db/shop?password=word", "postgresql://me@db/shop?password=word"),
    ],
)
def test_the_database_is_said_in_the_path_to_every_driver(url: str, the_same: str) -> None:
    assert joined(split(url)) == the_same
    assert joined(server_of(url)).replace("%2Ftmp", "/tmp") == the_same.replace("%2Ftmp", "/tmp")
    ours, theirs = PostgresStore(url)._database, psycopg.conninfo.conninfo_to_dict(joined(split(url)))
    assert theirs.get("dbname") == ours.name


@pytest.mark.parametrize("port", ["notaport", "54x2", "-1"])
def test_a_port_that_is_no_number_is_a_sentence(port: str) -> None:
    with pytest.raises(ConfigurationError, match="names a port that is no number"):
        open_store(f"postgresql://app@127.0.0.1:{port}/market", clock=SystemClock())


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///shop.db",
        "sqlite:////var/lib/a@b.db",
        "embedded:///log.db?retention=5",
        "postgresql:///shop",
        "postgresql://me:p%40ss%2Fw@a:5432,b:5433/shop?sslmode=require&options=-c%20a%3Db@c",
        "postgresql://me@[::1]:5432/shop",
        "nats://a:4222,b:4222?replicas=3",
        "sqs://key:se%2Fcret@eu-central-1",
        "pubsub://project",
        "memory://",
    ],
)
def test_a_url_as_it_should_be_is_split(url: str) -> None:
    assert split(url).geturl().partition(":")[0] == url.partition(":")[0]

"""A URL whose password was not escaped is refused in words that do not show it."""

from __future__ import annotations

import pytest

from posthouse.brokers import open_broker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.local.url import split
from posthouse.stores import open_store

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

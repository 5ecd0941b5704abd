"""Secrets stay inside, wherever a text goes: logs, errors, checks, dead letters."""

from __future__ import annotations

import io
import json
import logging
import re
import time
import traceback
from collections.abc import Iterable
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse import Event, Payload, Service, Tx
from posthouse.brokers import open_broker
from posthouse.brokers.embedded.url import EmbeddedOptions
from posthouse.brokers.kafka.url import KafkaOptions
from posthouse.brokers.nats.url import NatsOptions
from posthouse.brokers.postgres.url import DRIVER_OPTIONS as POSTGRES_BROKER_OPTIONS
from posthouse.brokers.postgres.url import PostgresOptions as PostgresBrokerOptions
from posthouse.brokers.pubsub.url import PubSubOptions
from posthouse.brokers.rabbitmq.url import RabbitmqOptions
from posthouse.brokers.redis.url import DRIVER_OPTIONS as REDIS_OPTIONS
from posthouse.brokers.redis.url import RedisOptions
from posthouse.brokers.sqs.url import SqsOptions
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable, ConfigurationError
from posthouse.receiving.holding import with_error
from posthouse.redaction import head_of, redacted, words_of
from posthouse.stores import DRIVER_OPTIONS as POSTGRES_OPTIONS
from posthouse.stores import PostgresOptions
from posthouse.stores.sqlite.url import SqliteOptions
from posthouse.testing import Harness
from posthouse.watch.logs import JsonLines, PlainLines

SECRET = "hunter2-hunter2"

KAFKA = [
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "security.protocol",
    "ssl.ca.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.certificate.pem",
    "bootstrap.servers",
    "client.id",
]
"""What the driver of Kafka takes, as far as it is about who one is."""

SECRETS = {
    *("password", "sslpassword", "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem"),
    *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
}
"""The options that hold a secret themselves. Others name files, people, places or numbers; some hold a URL, which may."""

URLS = {"listen_url", "runtime_url"}


def names(*options: type[msgspec.Struct]) -> Iterable[str]:
    return [field.name for kind in options for field in msgspec.structs.fields(kind)]


OPTIONS = sorted(
    {
        *names(SqliteOptions, PostgresOptions, EmbeddedOptions, KafkaOptions, NatsOptions, PostgresBrokerOptions),
        *names(PubSubOptions, RabbitmqOptions, RedisOptions, SqsOptions),
        *POSTGRES_OPTIONS,
        *POSTGRES_BROKER_OPTIONS,
        *REDIS_OPTIONS,
        *KAFKA,
    }
)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_every_adapter_is_shown_or_hidden_as_it_should_be(option: str) -> None:
    value = f"postgresql://u:{SECRET}@h/db" if option in URLS else SECRET
    for written in (value, quote(value, safe="")):
        shown = redacted(f"opened kafka://u@h:9092/db?a=1&{option}={written}&z=2, and it answers")
        assert (SECRET in shown) is (option not in SECRETS | URLS)
        assert shown.startswith("opened kafka://u@h:9092/db?a=1&")
        assert shown.endswith("z=2, and it answers")


def test_all_options_that_sound_like_secrets_are_known_to_be_some() -> None:
    loud = [option for option in OPTIONS if any(word in option for word in ("pass", "secret", "token", "pem"))]
    assert set(loud) - SECRETS == {"passfile", "ssl.certificate.pem"}, (
        "the first is a file's name, the second is public"
    )


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@db/orders",
        f"redis://:{SECRET}@db",
        f"nats://{SECRET}@db:4222",
        f"rabbitmq://me:a/b@c{SECRET}@db/orders",
        f"amqp://me:p%40{SECRET}@db",
        f"postgresql://me@db/x?listen_url=postgresql://me:{SECRET}@db2/x",
        f"http://h/?to={quote(f'postgresql://me:{SECRET}@db/x', safe='')}",
        f"host=db user=me password={SECRET} dbname=x",
        f"host=db password='a {SECRET}' dbname=x",
        str({"sasl.username": "me", "sasl.password": SECRET}),
        json.dumps({"password": f'a "{SECRET}"'}),
        json.dumps(json.dumps({"password": SECRET})),
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}=",
        f"aws_secret_access_key={SECRET}",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
        f"postgresql://h/x?password=%26{SECRET}&sslmode=require",
        f"postgresql://app:it's-{SECRET}@db/x",
        f"redis://:pa'{SECRET}@db",
        f"postgresql://app:{'t' * 5000}{SECRET}{'t' * 5000}@db/x",
        f"nats://{'t' * 900}{SECRET}@db",
        f"amqp://me:two words {SECRET}@db",
        str({"pass": SECRET}),
        str(("password", SECRET)),
        f"password=b'my {SECRET} word'",
        f"Authorization: Token {SECRET}",
        f"{{'authorization': 'Token {SECRET}'}}",
        f"x=postgresql%3a%2f%2fme%3ap%40{SECRET}%40db",
        f"postgresql://a:1@h and then redis://:{SECRET}@db",
        f"[SQL: SELECT posthouse.append_one(:p1)]\n[parameters: {{'p1': 'a]b{SECRET}'}}]\n(Background on this error)",
        f"null value in column\nDETAIL:  Failing row contains (1, two\nlines) and {SECRET}, x).\nCONTEXT:  none",
        f"duplicate key\nDETAIL:  Key (lower(email), n)=({SECRET} (x), 1) already exists.",
        f'invalid input syntax for type double precision: "{SECRET}"',
        f"invalid input for query argument $3: '{SECRET} (x)' (expected str, got int)",
        f"invalid input for query argument $3 in element #0 of executemany() sequence: {SECRET}",
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    assert SECRET not in redacted(text)


def test_of_what_a_database_quotes_the_rest_is_shown() -> None:
    detail = "no\nDETAIL:  Failing row contains (1, 2).\nCONTEXT:  here"
    assert redacted(detail) == "no\nDETAIL:  Failing row contains (…)\nCONTEXT:  here"
    assert redacted("Key (a, b)=(1, 2) already exists.") == "Key (a, b)=(…) already exists."
    assert (
        redacted("[SQL: SELECT 1]\n[parameters: (1,)]\n(Background)")
        == "[SQL: SELECT 1]\n[parameters: …]\n(Background)"
    )
    assert redacted("for query argument $1: 5 (expected str)") == "for query argument $1: 5 (expected str)"
    refused = "invalid input for query argument $1: 5 (expected str, got int)"
    assert redacted(refused) == "invalid input for query argument $1: … (expected str, got int)"


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:///orders.db",
        "postgresql://me@db:5432/orders?sslmode=require",
        "the password is wrong, and the token too",
        "idempotency key: shop:order:o1",
        "key=o1, partition key 5, ordering_key=t1:o1",
        "http://127.0.0.1:8081/subjects/orders-value/versions",
        "nats://127.0.0.1:4222",
        "kafka://a:9092,b:9092/x, says ops@shop.example",
        "(nats://127.0.0.1:4222), says ops@shop.example",
        "http://[::1]:8081/subjects",
        "passing by: a compass, bypass=1",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


NAMES = [
    *(
        "password",
        "passwd",
        "passphrase",
        "pass",
        "pwd",
        "secret",
        "token",
        "api_key",
        "apikey",
        "access_key",
        "private-key",
    ),
    *("key.pem", "keystore.key", "keystore.location.pem", "jaas.config", "oauthbearer.config"),
]
SIGNS = [
    "=",
    "=>",
    ":",
    "%3D",
    "%3A",
    "'",
    '"',
    "\\",
    '\\"',
    ",",
    " ",
    "\n",
    "&",
    "/",
    "?",
    ".",
    "@",
    "%40",
    "b'",
    'b"',
]
MARKS = [
    "://",
    "://a:",
    "://a:b ",
    "%3A%2F%2F",
    "%3A%2F%2Fa%3A",
    "://a/@",
    "nats://a",
    "authorization",
    "authorization: ",
    "Basic ",
]
MARKS += [
    "bearer ",
    "bearer",
    "input_value=",
    ", input_type=",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY",
    "-----END PRIVATE KEY",
    "Key (a)=(",
    "Failing row contains (",
    "[parameters: ",
    "invalid input for query argument $1",
]
TAILS = ["_key", "_access_key", "-access-key", ".id", ".stdin", "_value", "store", "x", "1"]
HOSTILE = [
    *(("", name + tail) for name in NAMES for tail in ("", "_", "_key", " ", "='", '="\\', "':")),
    *((name, tail) for name in ("token", "access_key") for tail in (*TAILS, *SIGNS)),
    *(
        (start, sign)
        for start in ("", "://a:,", "authorization:", "input_value=", "password='")
        for sign in (*SIGNS, *MARKS)
    ),
]
"""What a hostile text begins with, and what it says again and again."""


def seconds(text: str) -> float:
    """What it costs, by the clock of this thread, which stands while others work."""
    began = time.thread_time()
    redacted(text)
    return time.thread_time() - began


def out_of_proportion(start: str, again: str, end: str) -> bool:
    """Eight times the length costs about eight times as much; where each place was read from each other it was 64 times."""
    short, long = (start + again * (length // len(again)) + end for length in (1_000, 8_000))
    return all(seconds(long) > 24 * seconds(short) + 0.003 for _ in range(3))


@pytest.mark.parametrize("end", ["= ,", " @", "\n@", "! %40 @"])
def test_a_hostile_text_costs_its_length(end: str) -> None:
    assert not [(start, again) for start, again in HOSTILE if out_of_proportion(start, again, end)]


@pytest.mark.parametrize("again", ["access_key_", "://a:b ", "token ", "://a:,....", "password='"])
def test_a_very_long_text_is_shown_at_once(again: str) -> None:
    """Here what is quadratic takes minutes, and the suite's own limit ends it."""
    assert len(redacted(again * (400_000 // len(again)) + "! \n@")) <= 400_100


NAIVE = re.compile(
    r"((?:password|passwd|passphrase|\bpass|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key\.pem"
    r"|keystore\.(?:key|location\.pem)|jaas\.config|oauthbearer\.config)(?:[_.-](?:access[_-])?(?:key|id|stdin|value))*"
    r"\\?(?:[\"']\s*,|[\"']?\s*(?:=>?|:(?!/)|%3D|%3A))\s*)"
    r"""(?:b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\"|[^\s&]+)""",
    re.IGNORECASE,
)
"""Every secret behind a name, found by one expression that tries from each character anew."""


@given(st.lists(st.sampled_from([*NAMES, *TAILS, *(set(SIGNS) - {"@", "%40"}), "s", "oken", ".pem"]), max_size=14))
def test_names_are_found_as_if_each_character_were_tried(parts: list[str]) -> None:
    text = "".join(parts)
    assert redacted(text) == NAIVE.sub(r"\1…", text)


@pytest.mark.parametrize(
    "opened",
    [
        *("://me:", "://me:two words ", "password=", "password='two words ", 'password="two words ', "Authorization: "),
        *("bearer ", "input_value='", "-----BEGIN PRIVATE KEY-----\n", "x=a%3A%2F%2Fme%3A", 'password=\\"two words '),
    ],
)
def test_a_secret_that_the_cut_went_through_is_hidden(opened: str) -> None:
    """The reading ends in the secret; what is before was hidden, so that the head reaches as far as that."""
    for before in range(60):
        text = (
            f'token={"t" * (8_000 - before)} {opened}{SECRET}{SECRET}{SECRET}{SECRET}, input_type=@\'\\"" {"z" * 9_000}'
        )
        assert SECRET[:6] not in head_of(text, 1_000), before


def test_of_a_very_long_error_only_the_head_is_read() -> None:
    began = time.thread_time()
    assert words_of(ValueError("no room: " + "access_key_ = " * 2_000_000)).startswith("no room: access_key_ = ")
    assert time.thread_time() - began < 1


def test_our_errors_show_no_secret_even_in_a_traceback() -> None:
    error = BrokerUnavailable(f"cannot reach nats://me:{SECRET}@db: refused")
    told = str(error) + repr(error) + "".join(traceback.format_exception(error))
    assert SECRET not in told
    assert "nats://me:…@db: refused" in str(error)


def test_a_wrong_url_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_broker(f"kafak://me:{SECRET}@db", clock=SystemClock())
    assert SECRET not in str(refused.value)
    assert not [problem for problem in refused.value.problems if SECRET in problem]


@pytest.mark.parametrize("formatter", [JsonLines(), PlainLines()])
def test_a_line_of_the_log_shows_no_secret(formatter: logging.Formatter) -> None:
    paper = io.StringIO()
    handler = logging.StreamHandler(paper)
    handler.setFormatter(formatter)
    logger = logging.Logger("try")
    logger.addHandler(handler)
    try:
        raise ValueError(f"password={SECRET}")
    except ValueError:
        logger.exception("through %s", f"kafka://db?sasl.password={SECRET}", extra={"place": f"redis://:{SECRET}@db"})
    assert SECRET not in paper.getvalue()
    assert "kafka://db?sasl.password=…" in paper.getvalue()


async def test_a_dead_letter_keeps_no_secret_of_the_error_that_made_it() -> None:
    orders = Service("orders", namespace="shop")

    @orders.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @orders.on(OrderPlaced)
    async def fails(event: Event[OrderPlaced], tx: Tx) -> None:
        raise ConnectionError(f"no route to postgresql://me:{SECRET}@db/orders")

    async with Harness(orders) as harness:
        async with orders.transaction(tenant="t1") as tx:
            tx.publish(OrderPlaced(order_id="o1"))
        await harness.settled()
        (held,) = await harness.held(orders)
    assert SECRET not in held.error + held.stack + held.reason
    assert "postgresql://me:…@db/orders" in held.error
    assert SECRET not in words_of(ValueError(f"token={SECRET}"))
    assert SECRET not in with_error(held, ValueError(f"token={SECRET}")).stack

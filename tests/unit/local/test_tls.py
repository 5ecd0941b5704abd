"""The words of TLS, before anything connects."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qsl, quote_plus, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from redis.asyncio import SSLConnection

from posthouse.brokers import open_broker
from posthouse.brokers.kafka import KafkaBroker
from posthouse.brokers.nats import NatsBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.brokers.redis import RedisBroker
from posthouse.brokers.sqs import SqsBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.ledgers.postgres import PostgresLedger
from posthouse.local.tls import with_libpq_words
from posthouse.local.url import split
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.wal.proving import direct_url
from posthouse.testing.scratch import server_of
from tests.kit.servers.tls import Authority

CLOCK = SystemClock()
PLACES = [
    "nats://h?",
    "redis://h?",
    "rabbitmq://h?",
    "kafka://h:9092?",
    "postgresql://h/db?",
    "sqs://eu-central-1?",
    "pubsub://project?",
    "pubsub://project?emulator=h:8085&",
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.give("mine")
    authority.give("other")
    return authority


def problem_of(url: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        open_broker(url, clock=CLOCK)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(place: str, authority: Authority) -> None:
    folder = authority.folder
    (folder / "words.pem").write_text("no certificate")
    key = serialization.load_pem_private_key((folder / "mine.key").read_bytes(), None)
    (folder / "locked.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    mine = f"tls_ca={authority.certificate}&tls_cert={folder}/mine.pem"
    assert f"tls_ca={folder}/none.pem cannot be used: there is no such file" in problem_of(
        f"{place}tls_ca={folder}/none.pem"
    )
    assert "for the user that runs this" in problem_of(f"{place}tls_ca={folder}")
    assert "holds no certificate in PEM" in problem_of(f"{place}tls_ca={folder}/words.pem")
    assert "holds no certificate in PEM" in problem_of(
        f"{place}{mine.replace('mine', 'words')}&tls_key={folder}/mine.key"
    )
    assert "of different pairs" in problem_of(f"{place}{mine}&tls_key={folder}/other.key")
    assert "the key has a passphrase" in problem_of(f"{place}{mine}&tls_key={folder}/locked.key")
    assert "holds no private key" in problem_of(f"{place}{mine}")
    assert "tls_key needs tls_cert" in problem_of(f"{place}tls_ca={authority.certificate}&tls_key={folder}/mine.key")


@pytest.mark.parametrize("place", PLACES)
def test_yes_and_no_at_once_is_refused_and_a_misspelling_is_answered(place: str, authority: Authority) -> None:
    assert "leave one out" in problem_of(f"{place}tls=false&tls_ca={authority.certificate}")
    assert "Did you mean 'tls_cert'?" in problem_of(f"{place}tls_crt=/x")
    assert "bool" in problem_of(f"{place}tls=perhaps")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?sslmode=require&tls=true",
        "kafka://h:9092?security.protocol=SSL&tls=true",
        "rediss://h?ssl_cert_reqs=none&tls=true",
        "rediss://h?tls=false",
        "sqs://eu-central-1?tls=false",
        "pubsub://project?tls=false",
        "sqs://eu-central-1?endpoint=http://127.0.0.1:4566&tls=true",
    ],
)
def test_our_words_and_the_drivers_do_not_mix(url: str) -> None:
    assert "leave one out" in problem_of(url) or "plain text" in problem_of(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?sslmode=verify-full&sslrootcert=/none.pem",
        "kafka://h:9092?security.protocol=SSL&ssl.ca.location=/none.pem",
        "rediss://h?ssl_ca_certs=/none.pem",
    ],
)
def test_files_in_the_drivers_words_are_looked_at_too(url: str) -> None:
    assert "/none.pem cannot be used: there is no such file" in problem_of(url)


def context_in(url: str) -> ssl.SSLContext:
    broker = open_broker(url, clock=CLOCK)
    if isinstance(broker, NatsBroker):
        found = broker._client._driver["tls"]
    elif isinstance(broker, RabbitmqBroker):
        found = broker._client._driver["context"]
        assert broker._client._url.startswith("amqps://")
    else:
        assert isinstance(broker, RedisBroker)
        pool = broker._client._client.connection_pool
        made = pool.connection_class(**pool.connection_kwargs)
        assert isinstance(made, SSLConnection)
        found = made.ssl_context.get()
    assert isinstance(found, ssl.SSLContext)
    return found


@pytest.mark.parametrize("place", ["nats://h?", "redis://h?", "rediss://h?", "rabbitmq://h?"])
def test_server_and_name_are_proven_and_only_the_named_authority_is_believed(place: str, authority: Authority) -> None:
    for words in ("tls=true", f"tls_ca={authority.certificate}"):
        context = context_in(f"{place}{words}")
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    (subject,) = [found["subject"] for found in context.get_ca_certs()]
    assert "Posthouse" in str(subject)


def test_kafka_is_told_in_the_words_of_its_driver(authority: Authority) -> None:
    folder = authority.folder
    words = f"tls_ca={authority.certificate}&tls_cert={folder}/mine.pem&tls_key={folder}/mine.key"
    for signs_in, protocol in (("", "SSL"), ("&sasl.username=u&sasl.password=p&sasl.mechanism=PLAIN", "SASL_SSL")):
        broker = open_broker(f"kafka://h:9092?{words}{signs_in}", clock=CLOCK)
        assert isinstance(broker, KafkaBroker)
        told = broker._client.config()
        assert told["security.protocol"] == protocol
        assert told["ssl.ca.location"] == str(authority.certificate)
        assert told["ssl.key.location"] == f"{folder}/mine.key"


def test_sqs_is_told_in_the_words_of_its_driver(authority: Authority) -> None:
    folder = authority.folder
    words = f"tls_ca={authority.certificate}&tls_cert={folder}/mine.pem&tls_key={folder}/mine.key"
    broker = open_broker(f"sqs://eu-central-1?{words}", clock=CLOCK)
    assert isinstance(broker, SqsBroker)
    told = broker._client._options
    assert told["verify"] == str(authority.certificate)
    assert told["config"].client_cert == (f"{folder}/mine.pem", f"{folder}/mine.key")  # type: ignore[attr-defined]


def test_postgresql_is_told_in_the_words_of_libpq(authority: Authority) -> None:
    def told(url: str) -> dict[str, str]:
        problems: list[str] = []
        found = dict(parse_qsl(with_libpq_words(split(url), problems).query))
        assert not problems
        return found

    words = f"tls_ca={authority.certificate}&tls_cert={authority.folder}/mine.pem&tls_key={authority.folder}/mine.key"
    said = told(f"postgresql://h/db?{words}&schema=shop")
    assert said["sslmode"] == "verify-full"
    assert said["sslrootcert"] == str(authority.certificate)
    assert said["sslkey"].endswith("mine.key")
    assert said["schema"] == "shop"
    assert told("postgresql://h/db?tls=false")["sslmode"] == "disable"
    assert Path(told("postgresql://h/db?tls=true")["sslrootcert"]).is_file()
    assert told("postgresql://h/db?sslmode=require") == {"sslmode": "require"}


OPENERS = {
    "the store": lambda url: PostgresStore(url),
    "its LISTEN connection": lambda url: PostgresStore("postgresql://h/db", listen_url=url),
    "its runtime role": lambda url: PostgresStore("postgresql://h/db", isolation=True, runtime_url=url),
    "the broker": lambda url: PostgresBroker(url, clock=CLOCK),
    "the registry": open_ledger,
    "a test's server": server_of,
}
"""Whoever hands a URL to a driver of PostgreSQL, also where it was not opened by `open_store` or `open_broker`."""


@pytest.mark.parametrize("opener", OPENERS)
def test_whoever_opens_a_postgresql_knows_the_words(opener: str, authority: Authority) -> None:
    opened = OPENERS[opener](f"postgresql://h/db?tls_ca={authority.certificate}")
    assert f"sslmode=verify-full&sslrootcert={quote_plus(str(authority.certificate))}" in urls_in(opened)
    for words, says in (
        ("tls_ca=/none.pem", "there is no such file"),
        ("tls_crt=/x", "Did you mean 'tls_cert'?"),
        ("tsl_ca=/x", "Did you mean 'tls_ca'?"),
        ("ssl=true", "'ssl' is no option of a postgresql URL. Known: tls, tls_ca"),
        (f"tls=false&tls_ca={authority.certificate}", "leave one out"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            OPENERS[opener](f"postgresql://h/db?{words}")
        assert says in str(caught.value)


def urls_in(opened: object) -> str:
    """Where it would connect to."""
    match opened:
        case PostgresStore():
            listener = opened._database.notifier._listener
            assert listener is not None
            assert listener._url == direct_url(opened._database)
            return f"{opened._database.url} {listener._url}"
        case PostgresBroker():
            return opened._database.share.url
        case PostgresLedger():
            return opened._url
    return str(opened)


def test_a_store_takes_the_same_words_on_each_of_its_ways(authority: Authority) -> None:
    store = open_store(f"postgresql://h/db?tls_ca={authority.certificate}", clock=CLOCK)
    assert "verify-full" in urlsplit(store._database.url).query  # type: ignore[attr-defined]
    for way in ("listen_url", "runtime_url"):
        url = f"postgresql://h/db?isolation={str(way == 'runtime_url').lower()}&{way}=postgresql://h/db%3Ftls_ca=/none.pem"
        with pytest.raises(ConfigurationError, match="there is no such file"):
            open_store(url, clock=CLOCK)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqps://h", "@host:5671/vhost?tls=true"),
        ("rabbitmqs://h", "@host:5671/vhost?tls=true"),
        ("tls://h:4222", "nats://host:4222?tls=true"),
    ],
)
def test_schemes_of_others_are_answered_with_ours(url: str, says: str) -> None:
    assert says in problem_of(url)

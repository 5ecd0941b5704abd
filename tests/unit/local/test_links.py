"""Who may listen on the way to a store or a broker."""

from __future__ import annotations

import pytest

from posthouse.local.links import encryption_check, is_loopback

FAR = "db.example"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///shop.db",
        "embedded:///log.db",
        "memory://",
        "postgresql://me@127.0.0.1/db",
        "postgresql://me@localhost:5432/db?sslmode=disable",
        "postgresql:///db?host=/run/postgresql",
        "postgresql:///db",
        "postgresql://me@[::1]:5432/db",
        "nats://127.0.0.1:4222,localhost:4223",
        "redis://127.0.0.1",
        "rabbitmq://127.0.0.1?management=http://127.0.0.1:15672",
        "kafka://127.0.0.1:9092",
        "sqs://eu-central-1",
        "sqs://eu-central-1?endpoint=http://127.0.0.1:4566",
        "pubsub://shop",
        "pubsub://shop?emulator=localhost:8085",
        "PostgresStore",
    ],
)
def test_what_stays_on_this_host_is_not_spoken_of(url: str) -> None:
    assert encryption_check(url, {}) is None


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:word@{FAR}/db",
        f"postgresql://me:word@{FAR}/db?sslmode=prefer",
        f"postgresql://me:word@{FAR}/db?tls=false",
        f"postgresql:///db?host={FAR}",
        f"postgresql://127.0.0.1/db?listen_url=postgresql://{FAR}/db",
        f"nats://me:word@127.0.0.1:4222,{FAR}:4222",
        f"redis://me:word@{FAR}:6379",
        f"rabbitmq://me:word@{FAR}",
        f"rabbitmq://me:word@{FAR}?tls=true&management=http://{FAR}:15672",
        f"kafka://{FAR}:9092",
        f"kafka://{FAR}:9092?security.protocol=SASL_PLAINTEXT&sasl.password=word",
        f"sqs://eu-central-1?endpoint=http://{FAR}",
        f"pubsub://shop?emulator={FAR}:8085",
    ],
)
def test_plain_text_on_the_way_to_another_host_is_warned_of_with_what_to_do(url: str) -> None:
    check = encryption_check(url, {})
    assert check is not None
    assert check.judgement == "warn"
    assert f"{FAR}" in check.found
    assert "in plain text" in check.found
    assert "docs/tls.md" in check.fix
    assert "word@" not in check.found


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://{FAR}/db?sslmode=require",
        f"postgresql://{FAR}/db?sslmode=verify-ca",
        f"rediss://{FAR}?ssl_cert_reqs=none",
        f"rediss://{FAR}?ssl_check_hostname=false",
        f"kafka://{FAR}:9092?security.protocol=SSL&enable.ssl.certificate.verification=false",
        f"kafka://{FAR}:9092?security.protocol=SSL&ssl.endpoint.identification.algorithm=none",
    ],
)
def test_a_proof_that_was_switched_off_is_warned_of(url: str) -> None:
    check = encryption_check(url, {})
    assert check is not None
    assert check.judgement == "warn"
    assert "does not prove who answers" in check.found


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://{FAR}/db?tls=true",
        f"postgresql://{FAR}/db?sslmode=verify-full",
        f"nats://{FAR}?tls_ca=/ca.pem",
        f"redis://{FAR}?tls=true",
        f"rediss://{FAR}",
        f"rabbitmq://{FAR}?tls=true&management=https://{FAR}:15671",
        f"kafka://{FAR}:9092?tls=true",
        f"kafka://{FAR}:9092?security.protocol=ssl",
    ],
)
def test_a_link_by_tls_is_as_it_should_be(url: str) -> None:
    check = encryption_check(url, {})
    assert check is not None
    assert (check.judgement, check.fix) == ("ok", "")


def test_the_environment_that_drivers_heed_counts_too() -> None:
    assert encryption_check("postgresql:///db", {"PGHOST": FAR}) is not None
    check = encryption_check(f"postgresql://{FAR}/db", {"PGSSLMODE": "verify-full"})
    assert check is not None
    assert check.judgement == "ok"
    assert encryption_check("pubsub://shop", {"PUBSUB_EMULATOR_HOST": f"{FAR}:8085"}) is not None


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost", "/run/x", "")),
        *((host, False) for host in ("10.0.0.1", "0.0.0.0", FAR, "localhost.example")),
    ],
)
def test_only_the_loopback_and_sockets_are_this_host(host: str, here: bool) -> None:
    assert is_loopback(host) is here

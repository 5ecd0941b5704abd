"""Tokens: what a stranger may try, and what happens while keys change or cannot be had."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posthouse.clock import ManualClock
from posthouse.edges.keys import KeySet, KeysUnavailable, reached
from posthouse.edges.oidc import NotWelcome, Refused, Sender
from posthouse.errors import ConfigurationError
from tests.kit.servers.issuer import ACCOUNT, AUDIENCE, Issuer, issuing
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.tls import Authority

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def server() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def issuer(server: Issuer) -> Issuer:
    """As new, but for its first key, which takes a while to make."""
    for kid in [kid for kid in server.keys if kid != "first"]:
        del server.keys[kid]
    server.extra, server.fetches, server.max_age, server.answer = [], 0, 3_600, None
    return server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def sender(issuer: Issuer, clock: ManualClock) -> Sender:
    return Sender(audience=AUDIENCE, account=ACCOUNT, keys=KeySet(issuer.url, clock), clock=clock)


async def test_a_token_of_the_right_account_passes_in_both_forms_of_the_issuer(issuer: Issuer, sender: Sender) -> None:
    await sender.check(issuer.token(now=NOW))
    await sender.check(issuer.token(now=NOW, iss="accounts.google.com"))
    assert issuer.fetches == 1


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("aud", "https://other.example/push"),
        ("aud", [AUDIENCE, "https://other.example/push"]),
        ("aud", [AUDIENCE]),
        ("aud", None),
        ("iss", "https://accounts.google.com.evil.example"),
        ("iss", "http://accounts.google.com"),
        ("iss", None),
        ("exp", int(NOW) - 31),
        ("exp", None),
        ("exp", "soon"),
        ("iat", int(NOW) + 31),
        ("iat", None),
        ("email", None),
        ("email_verified", None),
        ("email_verified", "true"),
        ("email_verified", 1),
    ],
)
async def test_a_claim_that_is_wrong_or_missing_is_refused(
    issuer: Issuer, sender: Sender, claim: str, value: Any
) -> None:
    with pytest.raises(Refused) as refused:
        await sender.check(issuer.token(now=NOW, **{claim: value}))
    assert not isinstance(refused.value, NotWelcome)


@pytest.mark.parametrize(
    "claims",
    [{"email": "somebody@shop.iam.gserviceaccount.com"}, {"email": ACCOUNT.upper()}, {"email_verified": False}],
)
async def test_another_account_or_an_unverified_one_is_not_welcome(
    issuer: Issuer, sender: Sender, claims: dict[str, Any]
) -> None:
    with pytest.raises(NotWelcome):
        await sender.check(issuer.token(now=NOW, **claims))


async def test_clocks_may_differ_by_half_a_minute(issuer: Issuer, sender: Sender) -> None:
    await sender.check(issuer.token(now=NOW, exp=int(NOW) - 29))
    await sender.check(issuer.token(now=NOW, iat=int(NOW) + 29))


async def test_a_token_without_a_signature_is_refused(issuer: Issuer, sender: Sender) -> None:
    good = issuer.token(now=NOW)
    _, claims, signature = good.split(".")
    none = {"alg": "none", "typ": "JWT", "kid": "first"}
    for token in (f"{_part(none)}.{claims}.", f"{_part(none)}.{claims}.{signature}", f"{good.rsplit('.', 1)[0]}."):
        with pytest.raises(Refused):
            await sender.check(token)


async def test_the_public_key_is_no_secret_to_sign_with(issuer: Issuer, sender: Sender) -> None:
    """HS256 keyed by the PEM of the public key, which libraries have taken for RS256."""
    pem = issuer.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = issuer.token(now=NOW).split(".")[1]
    for alg in ("HS256", "RS256"):
        signed = f"{_part({'alg': alg, 'typ': 'JWT', 'kid': 'first'})}.{claims}"
        mac = base64.urlsafe_b64encode(hmac.new(pem, signed.encode(), hashlib.sha256).digest()).rstrip(b"=")
        with pytest.raises(Refused):
            await sender.check(f"{signed}.{mac.decode()}")


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
async def test_no_other_algorithm_is_taken_even_with_the_right_key(
    issuer: Issuer, sender: Sender, algorithm: str
) -> None:
    claims = jwt.decode(issuer.token(now=NOW), options={"verify_signature": False})
    with pytest.raises(Refused, match="another algorithm"):
        await sender.check(jwt.encode(claims, issuer.keys["first"], algorithm=algorithm, headers={"kid": "first"}))


async def test_a_token_of_another_key_under_a_known_id_is_refused(issuer: Issuer, sender: Sender) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = jwt.decode(issuer.token(now=NOW), options={"verify_signature": False})
    for headers in ({"kid": "first"}, {"kid": "first", "jwk": {"kty": "RSA"}, "jku": issuer.url}):
        with pytest.raises(Refused, match="signature"):
            await sender.check(jwt.encode(claims, stranger, algorithm="RS256", headers=headers))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "a.b.c.d", "ü.ü.ü", "x" * 9_000, "e30.e30.e30"])
async def test_what_is_no_token_is_refused_and_asks_nobody(issuer: Issuer, sender: Sender, token: str) -> None:
    with pytest.raises(Refused):
        await sender.check(token)
    assert issuer.fetches == 0


async def test_a_token_longer_than_any_of_googles_is_refused_however_good_it_is(issuer: Issuer, sender: Sender) -> None:
    with pytest.raises(Refused, match="too long"):
        await sender.check(issuer.token(now=NOW, padding="x" * 8_192))


async def test_a_changed_claim_breaks_the_signature(issuer: Issuer, sender: Sender) -> None:
    header, _, signature = issuer.token(now=NOW).split(".")
    other = issuer.token(now=NOW, email="x@y").split(".")[1]
    with pytest.raises(Refused, match="signature"):
        await sender.check(f"{header}.{other}.{signature}")


async def test_a_new_key_is_fetched_when_a_token_names_it(issuer: Issuer, sender: Sender, clock: ManualClock) -> None:
    await sender.check(issuer.token(now=NOW))
    issuer.add("second")
    clock.advance(31)
    await sender.check(issuer.token(now=NOW, kid="second"))
    assert issuer.fetches == 2


async def test_a_flood_of_unknown_key_ids_is_no_flood_of_fetches(
    issuer: Issuer, sender: Sender, clock: ManualClock
) -> None:
    issuer.add("gone")
    tokens = [issuer.token(now=NOW, kid="gone") for _ in range(50)]
    del issuer.keys["gone"]
    await sender.check(issuer.token(now=NOW))
    for _ in range(2):
        results = await asyncio.gather(*(sender.check(token) for token in tokens), return_exceptions=True)
        assert all(isinstance(result, Refused) for result in results)
        assert issuer.fetches == 1
    clock.advance(31)
    await asyncio.gather(*(sender.check(token) for token in tokens), return_exceptions=True)
    assert issuer.fetches == 2


async def test_a_key_that_was_withdrawn_is_believed_no_longer_than_the_issuer_said(
    issuer: Issuer, sender: Sender, clock: ManualClock
) -> None:
    issuer.max_age = 600
    issuer.add("second")
    token = issuer.token(now=NOW)
    await sender.check(token)
    kept = issuer.keys.pop("first")
    try:
        clock.advance(599)
        await sender.check(token)
        clock.advance(2)
        with pytest.raises(Refused, match="does not have"):
            await sender.check(token)
    finally:
        issuer.keys = {"first": kept}


async def test_old_keys_serve_for_an_hour_while_no_new_ones_can_be_had(
    issuer: Issuer, sender: Sender, clock: ManualClock
) -> None:
    issuer.max_age = 600
    await sender.check(issuer.token(now=NOW))
    issuer.answer = (503, b"")
    clock.advance(601)
    await sender.check(issuer.token(now=clock.now()))
    clock.advance(3_600)
    with pytest.raises(KeysUnavailable):
        await sender.check(issuer.token(now=clock.now()))


@pytest.mark.parametrize(
    "answer",
    [
        (500, b""),
        (302, b""),
        (200, b"{"),
        (200, b'{"keys": []}'),
        (200, b'{"keys": [{"kid": 1}]}'),
        (200, b" " * 300_000),
    ],
    ids=["error", "redirect", "no JSON", "empty", "no key", "too large"],
)
async def test_without_keys_nobody_can_tell_and_it_is_asked_again_later(
    issuer: Issuer, sender: Sender, clock: ManualClock, answer: tuple[int, bytes]
) -> None:
    issuer.answer = answer
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await sender.check(issuer.token(now=NOW))
    assert issuer.fetches == 1
    issuer.answer = None
    clock.advance(31)
    await sender.check(issuer.token(now=NOW))


async def test_a_set_of_keys_that_is_too_large_is_not_read_to_its_end(issuer: Issuer, sender: Sender) -> None:
    issuer.answer = (200, issuer.document() + b" " * 300_000)
    with pytest.raises(KeysUnavailable):
        await sender.check(issuer.token(now=NOW))


async def test_an_empty_set_does_not_replace_the_last_good_one(
    issuer: Issuer, sender: Sender, clock: ManualClock
) -> None:
    await sender.check(issuer.token(now=NOW))
    issuer.answer = (200, b'{"keys": []}')
    clock.advance(3_601)
    await sender.check(issuer.token(now=clock.now()))


async def test_only_keys_that_sign_with_rsa_and_are_long_enough_are_taken(issuer: Issuer, sender: Sender) -> None:
    issuer.extra = [
        {"kid": "ec", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kid": "secret", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {"kid": "broken", "kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "RSA"},
    ]
    issuer.add("short", bits=1024)
    await sender.check(issuer.token(now=NOW))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        short = issuer.token(now=NOW, kid="short")
    with pytest.raises(Refused, match="does not have"):
        await sender.check(short)


@pytest.mark.parametrize(
    "url",
    [
        "http://keys.example/set",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "https://",
        "",
        "https://169.254.169.254/keys",
        "https://[fe80::1]/keys",
        "https://[::ffff:169.254.169.254]/keys",
    ],
)
def test_keys_come_by_https_only(url: str) -> None:
    with pytest.raises(ConfigurationError, match="https"):
        KeySet(url, ManualClock(time.time()))


def _part(value: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "secret", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%lo", "fd00:ec2::254", "100.100.100.200"]
)
async def test_a_name_that_leads_to_a_clouds_secrets_is_asked_nothing(
    issuer: Issuer, clock: ManualClock, secret: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where only one of its addresses does."""
    port = int(issuer.url.split("/")[2].partition(":")[2])

    def resolved(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.1", secret)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    keys = KeySet(issuer.url.replace("127.0.0.1", "localhost"), clock)
    with pytest.raises(KeysUnavailable):
        await keys.key("any")
    assert f"leads to {secret}, where clouds tell their machines secrets" in caplog.text
    assert issuer.fetches == 0


def test_a_name_is_looked_up_once_and_the_address_that_was_judged_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    resolve = socket.getaddrinfo

    def rebinding(host: str, port: int, *rest: int, **named: int) -> object:
        if host != "keys.example":
            return resolve(host, port, *rest, **named)
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
        return resolve(address, port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        reached(("keys.example", server.getsockname()[1])) as connection,
    ):
        assert connection.getpeername() == server.getsockname()
    assert asked == ["keys.example"]


async def test_who_is_reached_by_address_still_proves_the_name(
    issuer: Issuer, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.give("keys", host=x509.DNSName("keys.example"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*files)
    resolve = socket.getaddrinfo

    def here(host: str, *rest: int, **named: int) -> object:
        return resolve("127.0.0.1" if host.endswith(".example") else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    place = urlsplit(issuer.url)
    async with Proxy("127.0.0.1", place.port or 0, tls=tls) as proxy:
        assert await KeySet(f"https://keys.example:{proxy.port}{place.path}", clock).key("first") is not None
        with pytest.raises(KeysUnavailable):
            await KeySet(f"https://other.example:{proxy.port}{place.path}", clock).key("first")

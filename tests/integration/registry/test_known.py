"""Who asks a registry without being one of its users: by a bearer token of an issuer, or by what a proxy signed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

pytest.importorskip("httpx2", reason="the registry client of confluent-kafka needs httpx2")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from posthouse.cli.knowing import knowing
from posthouse.errors import ConfigurationError
from posthouse.governance.registry.door import KnownDoor, UsersDoor
from posthouse.governance.registry.serving import Listening, check_listening
from posthouse.governance.registry.users import Role, User, hashed, keep_user, new_token
from tests.integration.registry.client import ORDER, Client, schema_body, served
from tests.integration.registry.process import registry_process
from tests.integration.registry.test_door import ASKED
from tests.kit.servers.provider import KEY, Provider, providing

AUDIENCE = "registry"
HEADER = "Cf-Access-Jwt-Assertion"
ROLES = """
[[rule]]
groups = ["readers"]
roles = ["reader", "replayer"]

[[rule]]
subs = ["ci"]
roles = ["operator"]

[[rule]]
groups = ["platform"]
roles = ["admin"]

[[rule]]
groups = ["acme"]
roles = ["admin"]
tenants = ["acme"]

[[rule]]
people = ["ana@example.com"]
roles = ["admin"]
until = 2020-01-01T00:00:00Z
"""

Way = Literal["bearer", "proxy"]
Claims = dict[str, object]
Headers = dict[str, str]


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.toml"
    write(path, ROLES)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing() as provider:
        yield provider


def claims_of(provider: Provider, **other: object) -> Claims:
    """Those of the machine that may write, unless they are said differently; None leaves one out."""
    now = int(time.time())
    said = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ci", "iat": now, "exp": now + 300, **other}
    return {name: value for name, value in said.items() if value is not None}


def sent(way: Way, token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"} if way == "bearer" else {HEADER: token}


def door_of(provider: Provider, roles: Path, way: Way, users: Path | None = None) -> KnownDoor:
    known = knowing(
        roles,
        issuer=(provider.issuer, AUDIENCE) if way == "bearer" else None,
        proxy=(f"{provider.issuer}/keys", provider.issuer, AUDIENCE, HEADER) if way == "proxy" else None,
    )
    return KnownDoor(known, UsersDoor(users) if users else None)


@pytest.fixture(params=["bearer", "proxy"])
def way(request: pytest.FixtureRequest) -> Way:
    return "bearer" if request.param == "bearer" else "proxy"


@pytest.fixture
async def client(provider: Provider, roles: Path, way: Way) -> AsyncIterator[Client]:
    async with served("sqlite://", door=door_of(provider, roles, way)) as client:
        yield client


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ({"sub": "1", "groups": ["readers"]}, Role.READ),
        ({}, Role.WRITE),
        ({"sub": "1", "groups": "platform"}, Role.ADMIN),
        ({"sub": "1", "groups": ["acme"]}, Role.READ),
    ],
    ids=["reader", "operator", "admin", "of some tenants"],
)
async def test_the_claims_give_the_role(client: Client, provider: Provider, way: Way, said: Claims, role: Role) -> None:
    headers = sent(way, provider.signed(claims_of(provider, **said)))
    for method, path, body, needed in ASKED:
        answer = await client.http.request(method, path, json=body, headers=headers)
        assert (answer.status_code == 403) is (role < needed), (method, path, answer.text)
        assert answer.status_code != 401


def wrong_claims() -> list[Claims]:
    """Made when they are asked for: a long run is past what was ten minutes ahead when it began."""
    now = int(time.time())
    return [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": []},
        {"aud": None},
        {"exp": now - 60},
        {"exp": None},
        {"iat": now + 600},
        {"nbf": now + 600},
        {"sub": None},
    ]


async def test_a_wrong_or_missing_claim_lets_nobody_in(client: Client, provider: Provider, way: Way) -> None:
    for wrong in wrong_claims():
        answer = await client.http.get("/subjects", headers=sent(way, provider.signed(claims_of(provider, **wrong))))
        assert (answer.status_code, answer.json()["error_code"]) == (401, 401), wrong
        assert answer.headers["www-authenticate"] == "Bearer"
    right = sent(way, provider.signed(claims_of(provider, aud=[AUDIENCE, "another"])))
    assert (await client.http.get("/subjects", headers=right)).status_code == 200


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def with_the_public_key_as_a_secret(claims: Claims) -> str:
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = f"{part({'alg': 'HS256', 'kid': 'first', 'typ': 'JWT'})}.{part(claims)}"
    mac = hmac.digest(public, said.encode(), hashlib.sha256)
    return f"{said}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


FORGED: dict[str, Callable[[Claims], str]] = {
    "none": lambda claims: f"{part({'alg': 'none', 'kid': 'first'})}.{part(claims)}.",
    "HS256": with_the_public_key_as_a_secret,
    "another key": lambda claims: jwt.encode(claims, STRANGER, "RS256", headers={"kid": "first"}),
    "an unknown kid": lambda claims: jwt.encode(claims, STRANGER, "RS256", headers={"kid": "strange"}),
    "no kid": lambda claims: jwt.encode(claims, KEY, "RS256"),
    "a plain name": lambda claims: str(claims["sub"]),
    "nothing": lambda claims: "",
}


async def test_what_the_issuer_did_not_sign_lets_nobody_in(client: Client, provider: Provider, way: Way) -> None:
    claims = claims_of(provider)
    for name, forge in FORGED.items():
        answer = await client.http.get("/subjects", headers=sent(way, forge(claims)))
        assert (answer.status_code, answer.json()["error_code"]) == (401, 401), name
    assert (await client.http.get("/subjects")).status_code == 401
    assert (await client.http.get("/subjects", headers=sent(way, provider.signed(claims)))).status_code == 200


async def test_who_fits_no_rule_is_told_their_name(
    client: Client, provider: Provider, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    for said in ({"sub": "2"}, {"sub": "1", "email": "ana@example.com", "email_verified": True}):
        token = provider.signed(claims_of(provider, **said))
        answer = await client.http.get("/subjects", headers=sent(way, token))
        name = str(said.get("email", "2"))
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
        assert f"You are {name}, and no rule gives you a role here." in answer.text
        assert f"registry refused: You are {name}" in caplog.text
        assert token not in caplog.text


async def test_a_right_that_is_taken_away_is_gone_at_the_next_request(
    client: Client, provider: Provider, way: Way, roles: Path
) -> None:
    headers = sent(way, provider.signed(claims_of(provider)))
    assert (await client.http.get("/subjects", headers=headers)).status_code == 200
    write(roles, ROLES.replace('subs = ["ci"]', 'subs = ["another"]'))
    assert (await client.http.get("/subjects", headers=headers)).status_code == 403


async def test_one_way_does_not_take_the_proof_of_the_other(provider: Provider, roles: Path) -> None:
    token = provider.signed(claims_of(provider))
    async with served("sqlite://", door=door_of(provider, roles, "bearer")) as client:
        assert (await client.http.get("/subjects", headers=sent("proxy", token))).status_code == 401
    async with served("sqlite://", door=door_of(provider, roles, "proxy")) as client:
        assert (await client.http.get("/subjects", headers=sent("bearer", token))).status_code == 401
        twice = [(HEADER, token), (HEADER, token)]
        assert (await client.http.get("/subjects", headers=twice)).status_code == 401


async def test_users_of_the_file_are_known_as_well_and_judged_as_what_they_say(
    provider: Provider, roles: Path, way: Way, tmp_path: Path
) -> None:
    users, token = tmp_path / "users", new_token("robot")
    keep_user(users, User("robot", Role.READ, hashed(token)))
    signed = sent(way, provider.signed(claims_of(provider)))
    registering = ("POST", "/subjects/a/versions", schema_body(ORDER))
    async with served("sqlite://", door=door_of(provider, roles, way, users)) as client:

        async def status(headers: Headers) -> int:
            method, path, body = registering
            return (await client.http.request(method, path, json=body, headers=headers)).status_code

        assert await status(signed) == 200
        assert await status({"Authorization": f"Bearer {token}"}) == 403
        assert await status({**signed, "Authorization": f"Bearer {token}x"}) == 401
        assert (await client.http.get("/subjects")).headers["www-authenticate"].startswith("Basic")


async def test_keys_that_cannot_be_had_are_no_refusal_of_the_token(roles: Path, way: Way) -> None:
    async with providing() as gone:
        token = gone.signed(claims_of(gone))
    async with served("sqlite://", door=door_of(gone, roles, way)) as client:
        answer = await client.http.get("/subjects", headers=sent(way, token))
    assert (answer.status_code, answer.json()["error_code"]) == (503, 503)


async def test_an_issuer_at_which_nobody_signs_in_is_believed_as_well(provider: Provider, roles: Path) -> None:
    """As those of clusters and of build services."""
    provider.document = {"authorization_endpoint": "urn:kubernetes:programmatic_authorization"}
    async with served("sqlite://", door=door_of(provider, roles, "bearer")) as client:
        answer = await client.http.get("/subjects", headers=sent("bearer", provider.signed(claims_of(provider))))
    assert answer.status_code == 200


async def test_changes_are_in_the_log_with_who_made_them(
    client: Client, provider: Provider, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    headers = sent(way, provider.signed(claims_of(provider)))
    await client.http.get("/subjects", headers=headers)
    await client.http.post("/subjects/a/versions", json=schema_body(ORDER), headers=headers)
    await client.http.put("/config", json={"compatibility": "NONE"}, headers=headers)
    lines = [line.getMessage() for line in caplog.records if line.name == "posthouse.governance.registry"]
    assert lines == ["registry changed: ci, POST '/subjects/a/versions'", "registry refused: ci, PUT '/config'"]


def test_minutes_after_a_sign_in_are_refused(tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    roles.write_text('[[rule]]\ngroups = ["a"]\nroles = ["reader"]\nminutes = 60\n')
    with pytest.raises(ConfigurationError, match="say `until`"):
        knowing(roles, issuer=("https://login.example", AUDIENCE), proxy=None)


def test_where_an_issuer_says_who_asks_it_may_listen_anywhere(roles: Path) -> None:
    known = knowing(roles, issuer=("https://login.example", AUDIENCE), proxy=None)
    check_listening(Listening(host="0.0.0.0", known=known, most_bytes=1, patience=1.0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--oidc-issuer", "https://a.example", "--oidc-audience", "x"], "--oidc-issuer needs --roles FILE"),
        (["--oidc-issuer", "https://a.example", "--roles", "roles.toml"], "--oidc-issuer needs --oidc-audience"),
        (["--oidc-audience", "x"], "--oidc-audience is for --oidc-issuer"),
        (["--proxy-keys", "https://a.example"], "--proxy-keys needs --roles FILE"),
        (["--proxy-issuer", "x"], "--proxy-issuer is for --proxy-keys"),
        (["--roles", "roles.toml"], "--roles is for --oidc-issuer or --proxy-keys"),
        (["--proxy-keys", "https://a.example", "--roles", "roles.toml"], "anybody's assertion would do"),
        (
            ["--oidc-issuer", "http://a.example", "--oidc-audience", "x", "--roles", "roles.toml"],
            "an issuer is an https:// address",
        ),
    ],
)
def test_what_would_leave_the_door_open_is_refused(roles: Path, options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "posthouse", "registry", "serve", "--store", "sqlite://", "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=roles.parent, timeout=60)
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())


async def test_confluents_client_registers_with_a_bearer_token(provider: Provider, roles: Path, tmp_path: Path) -> None:
    def asking(url: str, **claims: object) -> SchemaRegistryClient:
        return SchemaRegistryClient(
            {
                "url": url,
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": provider.signed(claims_of(provider, **claims)),
                "bearer.auth.logical.cluster": "here",
                "bearer.auth.identity.pool.id": "here",
                "max.retries": 0,
            }
        )

    def use(url: str) -> tuple[int, list[str], list[int]]:
        order, refused = Schema(json.dumps(ORDER), "AVRO"), []
        with asking(url) as client, asking(url, sub="2", groups=["readers"]) as reader, asking(url, aud="x") as other:
            id = client.register_schema("orders-value", order)
            for one in (reader, other):
                with pytest.raises(SchemaRegistryError) as caught:
                    one.register_schema("others-value", order)
                refused.append(caught.value.http_status_code)
            return id, reader.get_subjects(), refused

    options = ["--oidc-issuer", provider.issuer, "--oidc-audience", AUDIENCE, "--roles", str(roles)]
    with registry_process(f"sqlite:///{tmp_path / 'registry.db'}", *options) as url:
        assert await asyncio.to_thread(use, url) == (1, ["orders-value"], [403, 401])

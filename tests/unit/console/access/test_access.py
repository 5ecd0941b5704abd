"""Access: a proxy's assertion, the application's own function, and what cannot be configured."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.types import Scope

from posthouse.console.access import Access, Oidc, Proxy, Who
from posthouse.console.access.guard import Guard
from posthouse.errors import ConfigurationError
from tests.kit.servers.issuer import Issuer, issuing
from tests.unit.console.access.room import Room, guarding

ISSUER, AUDIENCE = "https://proxy.example", "console"
ANA: dict[str, object] = {"iss": ISSUER, "aud": AUDIENCE, "email": "ana@example.com", "sub": "1"}


def said(issuer: Issuer, **other: object) -> str:
    """An assertion about Ana, unless claims are said differently."""
    return issuer.token(kid="first", now=None, **{**ANA, **other})


def by_claims(claims: object) -> Who | None:
    assert isinstance(claims, dict)
    return Who(name=claims["email"], roles=frozenset(("reader",))) if claims["email"] == "ana@example.com" else None


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


def proxied(issuer: Issuer) -> Access:
    proxy = Proxy(keys=issuer.url, issuer=ISSUER, audience=AUDIENCE, header="Cf-Access-Jwt-Assertion")
    return Access(proxy=proxy, roles=by_claims, host_names=("console.example",))


@pytest.fixture
async def room(issuer: Issuer) -> AsyncIterator[Room]:
    issuer.answer = None
    async with guarding(proxied(issuer)) as room:
        yield room


HEADER = "cf-access-jwt-assertion"


async def test_whom_the_proxy_signs_for_is_let_in_without_a_session(room: Room, issuer: Issuer) -> None:
    async with room.client(host="console.example") as client:
        answer = await client.get("/api/who", headers={HEADER: said(issuer)})
        told = await client.get("/api/access/session", headers={HEADER: said(issuer)})
        without = await client.get("/api/who")

    assert answer.json()["name"] == "ana@example.com"
    assert told.json()["data"]["way"] == "proxy"
    assert told.json()["data"]["who"]["name"] == "ana@example.com"
    assert "set-cookie" not in answer.headers
    assert without.status_code == 401
    assert "through its proxy" in without.text


async def test_a_proxy_may_sign_with_an_elliptic_curve(issuer: Issuer) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    issuer.extra = [
        {**ECAlgorithm.to_jwk(one.public_key(), as_dict=True), "kid": kid, "use": "sig"}
        for kid, one in (("curve", key), ("longer", other))
    ]
    now = int(time.time())
    claims = {**ANA, "iat": now, "exp": now + 60}
    async with guarding(proxied(issuer)) as room, room.client() as client:
        good = jwt.encode(claims, key, "ES256", headers={"kid": "curve"})
        assert (await client.get("/api/who", headers={HEADER: good})).status_code == 200
        confused = said(issuer).split(".")
        for bad in (
            jwt.encode(claims, other, "ES384", headers={"kid": "longer"}),
            jwt.encode(claims, key, "ES256", headers={"kid": "first"}),
            ".".join((good.split(".")[0], *confused[1:])),
        ):
            assert (await client.get("/api/who", headers={HEADER: bad})).status_code == 401
    issuer.extra = []


async def test_an_assertion_that_is_not_the_proxys_for_this_console_and_now_is_refused(
    room: Room, issuer: Issuer
) -> None:
    now = int(time.time())
    bad: list[dict[str, object]] = [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": None},
        {"exp": now - 60},
        {"exp": None},
        {"iat": now + 600},
        {"nbf": now + 600},
        {"sub": None},
    ]
    async with room.client() as client:
        for wrong in bad:
            answer = await client.get("/api/who", headers={HEADER: said(issuer, **wrong)})
            assert answer.status_code == 401, wrong
        for text in ("", "x", "a.b.c", "e30.e30.", "x" * 40_000):
            assert (await client.get("/api/who", headers={HEADER: text})).status_code == 401, text[:10]
        for spoofed in ("x-forwarded-user", "x-assertion", "authorization", "cookie"):
            assert (await client.get("/api/who", headers={spoofed: said(issuer)})).status_code == 401


async def test_two_assertions_are_none(room: Room, issuer: Issuer) -> None:
    async with room.client() as client:
        two = [(HEADER, said(issuer)), (HEADER, said(issuer))]
        assert (await client.get("/api/who", headers=two)).status_code == 401


async def test_somebody_without_a_role_is_told_their_name(room: Room, issuer: Issuer) -> None:
    async with room.client() as client:
        token = said(issuer, email="eve@example.com")
        answer = await client.get("/api/who", headers={HEADER: token})
        told = await client.get("/api/access/session", headers={HEADER: token})

    assert answer.status_code == 403
    assert "You are eve@example.com" in answer.text
    assert "You are eve@example.com" in told.json()["data"]["refused"]


async def test_another_site_cannot_act_through_the_proxys_own_cookie(room: Room, issuer: Issuer) -> None:
    async with room.client(origin="https://evil.example", sec_fetch_site="cross-site") as forged:
        answer = await forged.post("/api/acts/retry", json={}, headers={HEADER: said(issuer)})
    assert answer.status_code == 403
    assert room.did == 0


async def test_while_the_keys_cannot_be_had_nobody_is_let_in(issuer: Issuer) -> None:
    issuer.answer = (500, b"")
    async with guarding(proxied(issuer)) as room, room.client() as client:
        assert (await client.get("/api/who", headers={HEADER: said(issuer)})).status_code == 503
    issuer.answer = None


# The application's own function.


async def test_the_application_says_who_asks() -> None:
    async def later(scope: Scope) -> Who | None:
        return at_once(scope)

    def at_once(scope: Scope) -> Who | None:
        name = dict(scope["headers"]).get(b"x-test-user", b"").decode()
        until = time.time() - 1 if name == "over" else None
        roles = frozenset[str]() if name == "none" else frozenset(("reader",))
        return Who(name=name, roles=roles, until=until) if name else None  # type: ignore[arg-type]

    for function in (at_once, later):
        async with guarding(Access(who=function), root="/ops") as room, room.client(host="any.example") as client:
            answer = await client.get("/ops/api/who", headers={"x-test-user": "ana"})
            assert answer.json()["name"] == "ana"
            for name in ("", "over", "none"):
                assert (await client.get("/ops/api/who", headers={"x-test-user": name})).status_code == 401
            forged = await client.post("/ops/api/acts/x", json={}, headers={"x-test-user": "ana"})
            assert forged.status_code == 403  # the page is of any.example, not of another


# What cannot be configured.

OIDC = Oidc(issuer="https://login.example", client_id="console")
PROXY = Proxy(keys="https://proxy.example/keys", issuer=ISSUER, audience=AUDIENCE)


def nobody(*_: object) -> None:
    """Lets nobody in."""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Access(oidc=OIDC, proxy=PROXY, roles=nobody), "say one"),
        (lambda: Access(oidc=OIDC), "nothing says who may do what"),
        (lambda: Access(proxy=PROXY), "nothing says who may do what"),
        (lambda: Access(roles=nobody), "neither is there"),
        (lambda: Access(url="http://console.example"), "begins with https://"),
        (lambda: Access(url="console.example"), "begins with https://"),
        (lambda: Access(url="https://console.example/?a=b"), "ends with its path"),
        (lambda: Access(host_names=("https://console.example",)), "it is a name"),
        (lambda: Access(host_names=("*",)), "it is a name"),
        (lambda: Access(idle=0), "above 0"),
        (lambda: Access(most_sesions=5), "Did you mean 'most_sessions'?"),  # type: ignore[call-arg]
        (lambda: Oidc(issuer="http://login.example", client_id="x"), "https://"),
        (lambda: Oidc(issuer="https://user:pw@login.example", client_id="x"), "https://"),
        (lambda: Oidc(issuer="https://login.example", client_id=""), "client_id"),
        (lambda: Oidc(issuer="https://login.example", client_id="x", scopes=("email",)), "without 'openid'"),
        (lambda: Proxy(keys="http://proxy.example", issuer="i", audience="a"), "https only"),
        (lambda: Proxy(keys="https://proxy.example", issuer="", audience=""), "anybody's assertion would do"),
        (lambda: Proxy(keys="https://proxy.example", issuer="i", audience="a", header="a: b"), "name of a header"),
    ],
)
def test_what_would_leave_the_door_open_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert said in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "", "10.0.0.5", "console.example", "169.254.1.1"])
def test_a_public_address_needs_a_way_to_know_who_asks(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"give --oidc-issuer or --proxy-keys.*ssh -L"):
        Access(url="https://console.example").bound_to(host)
    with pytest.raises(ConfigurationError, match=r"--url https://console\.example"):
        Access(oidc=OIDC, roles=nobody).bound_to(host)
    with pytest.raises(ConfigurationError, match=r"--url https://console\.example"):
        Access(oidc=OIDC, roles=nobody, host_names=("console.example",)).bound_to(host)
    Access(oidc=OIDC, roles=nobody, url="https://console.example").bound_to(host)
    Access(proxy=PROXY, roles=nobody, host_names=("console.example",)).bound_to(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_the_loopback_needs_nothing(host: str) -> None:
    Access().bound_to(host)


def test_minutes_after_a_sign_in_mean_nothing_behind_a_proxy(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('[[rule]]\ngroups = ["a"]\nroles = ["replayer"]\nminutes = 60\n')

    with pytest.raises(ConfigurationError, match="say `until`"):
        Guard(Room().app(), access=Access(proxy=PROXY, roles=file))

"""OpenID Connect: the code flow against a real provider, and what a stranger may try with it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posthouse.clock import SystemClock
from posthouse.console.access import Access, Oidc
from posthouse.console.access.token import MOST_TRIES, WINDOW
from tests.kit.servers.provider import CLIENT, KEY, SECRET, Provider, providing
from tests.unit.console.access.room import Room, cookie, guarding

ROLES = """
[[rule]]
people = ["ana@example.com"]
roles = ["operator"]
payloads = true

[[rule]]
groups = ["acme"]
roles = ["reader"]
tenants = ["acme"]
"""


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.toml"
    write(path, ROLES)
    return path


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing() as provider:
        yield provider


class Ahead(SystemClock):
    """The machine's clock, moved by a test."""

    ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


@pytest.fixture
async def room(provider: Provider, roles: Path, clock: Ahead) -> AsyncIterator[Room]:
    oidc = Oidc(issuer=provider.issuer, client_id=CLIENT)
    async with guarding(Access(oidc=oidc, roles=roles), clock) as room:
        yield room


async def begin(client: httpx.AsyncClient, to: str = "/held") -> str:
    """Where the provider sends the browser back to: the whole address, not yet opened."""
    answer = await client.post("/api/access/oidc", json={"to": to})
    assert answer.status_code == 200, answer.text
    async with httpx.AsyncClient() as browser:
        return (await browser.get(answer.json()["data"]["go"])).headers["location"]


async def sign_in(client: httpx.AsyncClient, to: str = "/held") -> httpx.Response:
    return await client.get(await begin(client, to), headers={"sec-fetch-site": "cross-site"})


async def test_a_person_signs_in_at_the_provider_and_comes_back_where_they_were(room: Room) -> None:
    async with room.client() as client:
        answer = await sign_in(client, "/held?state=dead")

        assert (answer.status_code, answer.headers["location"]) == (303, f"/held?state=dead#key={room.key}")
        who = (await client.get("/api/who")).json()
    assert (who["name"], who["roles"], who["payloads"]) == ("ana@example.com", ["operator"], True)
    assert room.noted == [("console sign-in", "ana@example.com", "oidc")]
    port = room.address.partition(":")[2]
    assert cookie(answer, f"posthouse-session-{port}")["samesite"] == "Strict"
    assert cookie(answer, f"posthouse-signin-{port}")["max-age"] == "0"
    assert answer.headers["cache-control"] == "no-store"


async def test_the_provider_is_asked_with_pkce_state_and_nonce_and_the_cookie_comes_back_from_elsewhere(
    room: Room,
) -> None:
    async with room.client() as client:
        answers = [await client.post("/api/access/oidc", json={"to": "/"}) for _ in range(2)]

    first, second = (parse_qs(urlsplit(answer.json()["data"]["go"]).query) for answer in answers)
    assert first["redirect_uri"] == [f"http://{room.address}/signin/callback"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) >= 43
        assert first[name] != second[name]
    sealed = cookie(answers[0], f"posthouse-signin-{room.address.partition(':')[2]}")
    assert sealed.keys() == {"value", "httponly", "samesite", "path", "max-age"}
    assert sealed["samesite"] == "Lax"


async def test_behind_https_the_configured_address_is_the_one_to_come_back_to(provider: Provider, roles: Path) -> None:
    oidc = Oidc(issuer=provider.issuer, client_id=CLIENT)
    access = Access(oidc=oidc, roles=roles, url="https://ops.example/console")
    async with (
        guarding(access, root="/console") as room,
        room.client(host="ops.example", origin="https://ops.example") as client,
    ):
        answer = await client.post("/console/api/access/oidc", json={"to": "/"})
    asked = parse_qs(urlsplit(answer.json()["data"]["go"]).query)
    assert asked["redirect_uri"] == ["https://ops.example/console/signin/callback"]
    assert cookie(answer, "__Host-posthouse-signin")["path"] == "/"
    assert "secure" in cookie(answer, "__Host-posthouse-signin")


async def test_a_client_with_a_secret_says_it_to_the_provider_alone(
    provider: Provider, roles: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider.secret = SECRET
    oidc = Oidc(issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET)
    with caplog.at_level(logging.DEBUG):
        async with guarding(Access(oidc=oidc, roles=roles)) as room, room.client() as client:
            began = await client.post("/api/access/oidc", json={"to": "/"})
            assert SECRET not in began.text
            await sign_in(client)
            assert (await client.get("/api/who")).status_code == 200
    assert SECRET not in caplog.text
    assert SECRET not in repr(oidc)


async def refused(
    room: Room, client: httpx.AsyncClient, answer: httpx.Response, why: str = "refused", told: str = ""
) -> None:
    assert (answer.status_code, answer.headers["location"]) == (303, f"/signin?refused={why}"), told
    assert f"posthouse-session-{room.address.partition(':')[2]}" not in client.cookies
    assert (await client.get("/api/who")).status_code == 401


def wrong_claims() -> list[dict[str, object]]:
    """Made when they are asked for: a long run is past what was ten minutes ahead when it began."""
    now = int(time.time())
    return [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": []},
        {"aud": None},
        {"aud": [CLIENT, "another-client"]},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"azp": "another-client"},
        {"exp": now - 60},
        {"exp": None},
        {"exp": "soon"},
        {"iat": now + 600},
        {"nbf": now + 600},
        {"nonce": "of another sign-in"},
        {"nonce": ""},
        {"nonce": None},
        {"sub": None},
        {"sub": 7},
    ]


@pytest.mark.parametrize("half", [slice(9), slice(9, None)], ids=["first", "second"])
async def test_an_id_token_with_a_wrong_or_missing_claim_signs_nobody_in(
    room: Room, provider: Provider, half: slice
) -> None:
    """Nine of them each, as the tenth refusal makes everybody wait."""
    for wrong in wrong_claims()[half]:
        provider.claims = wrong
        async with room.client() as client:
            await refused(room, client, await sign_in(client), told=str(wrong))
    assert room.noted == []
    provider.claims = {}
    async with room.client() as client:
        assert (await sign_in(client)).headers["location"].partition("#key=")[0] == "/held"


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_an_id_token_that_the_provider_did_not_sign_signs_nobody_in(room: Room, provider: Provider) -> None:
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def hs256(claims: dict[str, object]) -> str:
        said = f"{part({'alg': 'HS256', 'kid': 'first', 'typ': 'JWT'})}.{part(claims)}"
        mac = hmac.digest(public, said.encode(), hashlib.sha256)
        return f"{said}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    forgeries = {
        "none": lambda claims: f"{part({'alg': 'none', 'kid': 'first'})}.{part(claims)}.",
        "the public key as a secret": hs256,
        "another key": lambda claims: jwt.encode(claims, other, "RS256", headers={"kid": "first"}),
        "an unknown key": lambda claims: jwt.encode(claims, other, "RS256", headers={"kid": "strange"}),
        "no key id": lambda claims: jwt.encode(claims, KEY, "RS256"),
        "another algorithm": lambda claims: jwt.encode(claims, KEY, "RS512", headers={"kid": "first"}),
        "its own key": lambda claims: jwt.encode(
            claims, other, "RS256", headers={"kid": "first", "jku": f"{provider.issuer}/keys", "jwk": {"kty": "RSA"}}
        ),
        "cut": lambda claims: provider.signed(claims)[:-4],
        "changed": lambda claims: ".".join(
            (lambda p: (p[0], part({**claims, "email": "zoe@example.com"}), p[2]))(provider.signed(claims).split("."))
        ),
    }
    for name, forge in list(forgeries.items()):
        provider.sign = forge
        async with room.client() as client:
            answer = await sign_in(client)
            assert answer.headers["location"] == "/signin?refused=refused", name
            assert (await client.get("/api/who")).status_code == 401, name
    provider.sign = provider.signed
    async with room.client() as client:
        assert (await sign_in(client)).headers["location"].partition("#key=")[0] == "/held"


async def test_a_sign_in_that_another_browser_began_is_refused(room: Room) -> None:
    """Login CSRF: an attacker sends somebody the address with the attacker's own code."""
    async with room.client() as attacker, room.client() as victim:
        address = await begin(attacker)
        await refused(room, victim, await victim.get(address))

        await begin(victim)
        await refused(room, victim, await victim.get(await begin(attacker)))


async def test_a_state_that_was_changed_is_refused_before_the_provider_is_asked(room: Room, provider: Provider) -> None:
    async with room.client() as client:
        address = await begin(client)
        code = parse_qs(urlsplit(address).query)["code"][0]
        for query in (
            f"code={code}",
            f"code={code}&state=",
            f"code={code}&state=x",
        ):
            await refused(room, client, await client.get(f"/signin/callback?{query}"))
            address = await begin(client)
    assert provider.exchanges == 0


async def test_a_parameter_that_is_said_twice_is_refused_before_the_provider_is_asked(
    room: Room, provider: Provider
) -> None:
    async with room.client() as client:
        await refused(room, client, await client.get(f"{await begin(client)}&code=x"))
    assert provider.exchanges == 0


async def test_the_cookie_of_a_sign_in_cannot_be_made(room: Room, provider: Provider) -> None:
    made = {"state": "s", "nonce": "n", "verifier": "v", "to": "https://evil.example", "until": 9e12}
    name = f"posthouse-signin-{room.address.partition(':')[2]}"
    for sealed in (f"{part(made)}.", part(made), f"{part(made)}.{'A' * 43}", ".", "", "\x7f", "x" * 3_000):
        async with room.client(cookies=httpx.Cookies({name: sealed})) as client:
            await refused(room, client, await client.get("/signin/callback?code=c&state=s"))
            client.cookies.clear()
    assert provider.exchanges == 0


async def test_an_address_that_was_used_signs_nobody_in_again(room: Room, provider: Provider) -> None:
    async with room.client() as client:
        address = await begin(client)
        kept = httpx.Cookies(client.cookies)
        assert (await client.get(address)).headers["location"].partition("#key=")[0] == "/held"
    async with room.client(cookies=kept) as again:
        await refused(room, again, await again.get(address))
    assert provider.exchanges == 1


async def test_a_code_that_somebody_else_read_is_worth_nothing_without_its_verifier(
    room: Room, provider: Provider
) -> None:
    """PKCE: the attacker puts the victim's code into a sign-in of their own."""
    async with room.client() as victim, room.client() as attacker:
        stolen = parse_qs(urlsplit(await begin(victim)).query)["code"][0]
        mine = parse_qs(urlsplit(await begin(attacker)).query)
        await refused(room, attacker, await attacker.get(f"/signin/callback?code={stolen}&state={mine['state'][0]}"))
    assert provider.exchanges == 1


async def test_a_sign_in_that_took_too_long_is_refused(room: Room, clock: Ahead, provider: Provider) -> None:
    async with room.client() as client:
        address = await begin(client)
        clock.ahead = 601
        await refused(room, client, await client.get(address))
    assert provider.exchanges == 0


async def test_an_answer_of_another_provider_is_refused(room: Room, provider: Provider) -> None:
    """Mix-up: RFC 9207."""
    async with room.client() as client:
        address = await begin(client)
        query = urlsplit(address).query.rpartition("&iss=")[0]
        await refused(room, client, await client.get(f"/signin/callback?{query}&iss=https://evil.example"))
    assert provider.exchanges == 0


async def test_whom_the_provider_refuses_is_told_in_our_words(room: Room) -> None:
    async with room.client() as client:
        state = parse_qs(urlsplit(await begin(client)).query)["state"][0]
        text = "error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E"
        answer = await client.get(f"/signin/callback?{text}&state={state}")
        await refused(room, client, answer)
    assert "script" not in answer.text + str(answer.headers["location"])


async def test_nobody_is_sent_elsewhere_after_a_sign_in(room: Room) -> None:
    for to in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\r\nSet-Cookie: a=b",
        "javascript:alert(1)",
        "held",
        "",
        "/ä",
        "/signin",
        "/" + "x" * 3_000,
    ):
        async with room.client() as client:
            assert (await sign_in(client, to)).headers["location"].partition("#key=")[0] == "/", to


async def test_who_comes_back_without_having_gone_costs_nobody_an_attempt(room: Room) -> None:
    async with room.client() as stranger, room.client() as client:
        for number in range(2 * MOST_TRIES):
            query = f"?state={number}&code=x" if number % 2 else ""
            answer = await stranger.get(f"/signin/callback{query}", headers={"sec-fetch-site": "cross-site"})
            assert answer.headers["location"] == "/signin?refused=refused"

        assert (await sign_in(client)).headers["location"].partition("#key=")[0] == "/held"


async def test_an_address_from_which_many_codes_were_refused_waits(
    room: Room, provider: Provider, clock: Ahead
) -> None:
    async with room.client() as client:
        provider.claims = {"nonce": "wrong"}
        for _ in range(MOST_TRIES):
            await refused(room, client, await sign_in(client))
        provider.claims = {}
        await refused(room, client, await sign_in(client))

        clock.ahead += WINDOW + 1
        assert (await sign_in(client)).headers["location"].partition("#key=")[0] == "/held"


async def test_who_has_no_role_is_told_so_and_gets_no_session(room: Room, provider: Provider) -> None:
    provider.person = {"sub": "2", "email": "eve@example.com", "email_verified": True}
    async with room.client() as client:
        await refused(room, client, await sign_in(client), "role")
    assert room.noted == [("console refused", "eve@example.com", "no rule gives a role")]


async def test_an_address_that_is_not_verified_is_nobodys(room: Room, provider: Provider) -> None:
    provider.person = {"sub": "2", "email": "ana@example.com", "email_verified": False}
    async with room.client() as client:
        await refused(room, client, await sign_in(client), "role")


async def test_groups_scope_somebody_to_tenants(room: Room, provider: Provider) -> None:
    provider.person = {"sub": "2", "groups": ["acme"]}
    async with room.client() as client:
        await sign_in(client)
        who = (await client.get("/api/who")).json()
    assert (who["name"], who["roles"], who["tenants"], who["payloads"]) == ("2", ["reader"], ["acme"], False)


async def test_a_role_that_is_taken_away_is_gone_at_once(room: Room, roles: Path) -> None:
    async with room.client() as client:
        await sign_in(client)
        write(roles, ROLES.replace("ana@", "somebody.else@"))
        answer = await client.get("/api/who")

        assert answer.status_code == 403
        assert "You are ana@example.com, and no rule gives you a role here." in answer.text
        write(roles, ROLES)
        assert (await client.get("/api/who")).status_code == 401  # the session is gone


async def test_a_provider_that_says_odd_things_of_itself_is_not_used(room: Room, provider: Provider) -> None:
    odd: list[dict[str, object]] = [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://internal.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 5},
        {"padding": "x" * 300_000},
    ]
    async with room.client() as client:
        for provider.document in odd:
            answer = await client.post("/api/access/oidc", json={"to": "/"})
            assert answer.status_code == 503, str(provider.document)[:80]
        provider.document = {}
        assert (await client.post("/api/access/oidc", json={"to": "/"})).status_code == 200


async def test_a_provider_that_breaks_is_told_as_that(room: Room, provider: Provider) -> None:
    provider.broken = 500
    async with room.client() as client:
        await refused(room, client, await sign_in(client), "provider")
        provider.broken = None
        assert (await sign_in(client)).headers["location"].partition("#key=")[0] == "/held"


async def test_neither_codes_nor_tokens_are_in_the_log(
    room: Room, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    tokens: list[str] = []

    def kept(claims: dict[str, object]) -> str:
        tokens.append(provider.signed(claims))
        return tokens[-1]

    provider.sign = kept
    with caplog.at_level(logging.DEBUG):
        async with room.client() as client:
            address = await begin(client)
            await client.get(address)
            provider.claims = {"nonce": "wrong"}
            await client.get(await begin(client))
    lines = "\n".join(str(vars(line)) for line in caplog.records if line.name.startswith("posthouse"))
    assert "signed in" in lines
    assert "made for another sign-in" in lines
    asked = parse_qs(urlsplit(address).query)
    for secret in (asked["code"][0], asked["state"][0], *tokens, *client.cookies.values()):
        assert secret not in lines

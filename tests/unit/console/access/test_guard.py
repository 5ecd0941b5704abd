"""The guard: attacks on a console that runs on the loopback with a one-time token, over real HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import pytest

from posthouse.clock import ManualClock
from posthouse.console.access import Access, Who
from posthouse.console.access.door import HEADERS, LARGEST, OF_STRANGERS
from posthouse.console.access.guard import NEW_LINKS, Guard
from posthouse.console.access.token import LIFE, MOST_TRIES, WINDOW
from tests.unit.console.access.room import Room, cookie, guarding, signed_in


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def room(clock: ManualClock) -> AsyncIterator[Room]:
    async with guarding(Access(idle=60, longest=100), clock) as room:
        yield room


async def raw(room: Room, *lines: str, body: bytes = b"") -> bytes:
    """An answer to a request that no client would write."""
    reader, writer = await asyncio.open_connection(*room.address.split(":"))
    writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode("latin-1") + body)
    await writer.drain()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


# Signing in.


async def test_a_cookie_that_another_port_of_the_host_was_sent_is_worth_nothing(room: Room) -> None:
    """Browsers send it to every port: whoever serves another one has it, and must not have the session."""
    async with room.client() as client:
        await signed_in(room, client)
        async with room.client(cookies=client.cookies, x_posthouse_key="") as thief:
            assert (await thief.get("/api/who")).status_code == 401
            assert (await thief.get("/api/access/session")).json()["data"]["who"] is None
            assert (await thief.post("/api/acts/retry", json={})).status_code == 401
            await thief.post("/api/access/out", json={})
        async with room.client(cookies=client.cookies, x_posthouse_key="a-guess") as thief:
            assert (await thief.get("/api/stream")).status_code == 401
        async with room.client(x_posthouse_key=room.key) as keyed:
            assert (await keyed.get("/api/who")).status_code == 401, "the key alone is worth as little"
        assert (await client.get("/api/who")).status_code == 200, "nor can the thief end it"
    assert room.did == 0


async def test_a_stranger_sees_the_interface_and_nothing_that_it_shows(room: Room) -> None:
    async with room.client() as client:
        page, data = await client.get("/held"), await client.get("/api/who")

    assert (page.status_code, page.text) == (200, "the interface")
    assert data.status_code == 401
    assert data.json()["error"]["message"] == "You are not signed in."


async def test_no_spelling_of_a_path_leads_past_the_guard(room: Room) -> None:
    for path in (
        "/api/who/",
        "/api//who",
        "//api/who",
        "/%61pi/who",
        "/api/../api/who",
        "/api",
        "/API/who",
        "/x/../api/who",
    ):
        answer = await raw(room, f"GET {path} HTTP/1.1", f"Host: {room.address}")
        assert b"roles" not in answer
        assert answer.split()[1] == b"401" or answer.endswith(b"the interface"), path


async def test_the_printed_token_signs_one_browser_in_once(room: Room) -> None:
    async with room.client() as client, room.client() as thief:
        answer = await client.post("/api/access/token", json={"token": room.token})
        assert answer.status_code == 200
        assert (await client.get("/api/who")).json()["name"] == "local"

        again = await thief.post("/api/access/token", json={"token": room.token})

        assert again.status_code == 401
        assert "was used" in again.json()["error"]["message"]
        assert "set-cookie" not in again.headers
        assert (await thief.get("/api/who")).status_code == 401
    assert room.noted == [("console sign-in", "local", "token")]


async def test_a_session_is_in_a_cookie_that_no_script_reads_and_no_other_site_sends(room: Room) -> None:
    async with room.client() as client:
        answer = await client.post("/api/access/token", json={"token": room.token})

    set_one = cookie(answer, f"posthouse-session-{room.address.partition(':')[2]}")
    assert set_one.keys() == {"value", "httponly", "samesite", "path"}
    assert (set_one["samesite"], set_one["path"]) == ("Strict", "/")


async def test_over_https_the_cookie_is_bound_to_the_host_and_to_https(clock: ManualClock) -> None:
    async with (
        guarding(Access(url="https://console.example"), clock) as room,
        room.client(host="console.example", origin="https://console.example") as client,
    ):
        answer = await client.post("/api/access/token", json={"token": room.token})

    set_one = cookie(answer, "__Host-posthouse-session")
    assert set_one.keys() == {"value", "httponly", "samesite", "path", "secure"}
    assert (set_one["samesite"], set_one["path"]) == ("Strict", "/")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


async def test_what_is_no_token_is_refused(room: Room) -> None:
    async with room.client() as client:
        for body in (
            b"",
            b"[]",
            b"{}",
            b'{"token": 5}',
            b'{"token": null}',
            b"\xff",
            b'{"token": "%s"}' % (b"x" * 8_000),
        ):
            answer = await client.post("/api/access/token", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 401), body[:20]
        await signed_in(room, client)


async def test_a_token_expires(room: Room, clock: ManualClock) -> None:
    clock.advance(LIFE + 1)
    async with room.client() as client:
        assert (await client.post("/api/access/token", json={"token": room.token})).status_code == 401


async def test_guessing_tokens_is_slow(room: Room, clock: ManualClock) -> None:
    async with room.client() as client:
        tries = [await client.post("/api/access/token", json={"token": f"guess {i}"}) for i in range(MOST_TRIES)]
        assert {answer.status_code for answer in tries} == {401}

        right = await client.post("/api/access/token", json={"token": room.token})
        assert right.status_code == 429
        assert "Try again in 60 seconds" in right.json()["error"]["hint"]

        clock.advance(WINDOW)
        await signed_in(room, client)


async def test_a_new_link_is_printed_on_request_and_the_answer_does_not_hold_it(room: Room) -> None:
    first = room.token
    async with room.client() as client:
        answer = await client.post("/api/access/link", json={})

        assert answer.json()["data"] == {"printed": True}
        assert len(room.tokens) == 2
        assert room.token not in answer.text
        assert (await client.post("/api/access/token", json={"token": first})).status_code == 401
        await signed_in(room, client)


async def test_links_are_not_printed_without_end(room: Room) -> None:
    async with room.client() as client:
        answers = [await client.post("/api/access/link", json={}) for _ in range(NEW_LINKS + 1)]

    assert [answer.status_code for answer in answers] == [200] * NEW_LINKS + [429]
    assert len(room.tokens) == 1 + NEW_LINKS


async def test_the_page_is_told_who_is_signed_in_and_how_to(room: Room) -> None:
    async with room.client() as client:
        before = (await client.get("/api/access/session")).json()["data"]
        await signed_in(room, client)
        after = (await client.get("/api/access/session")).json()["data"]

    assert before == {"way": "token", "provider": "", "who": None, "refused": ""}
    assert after["who"]["name"] == "local"
    assert after["who"]["roles"] == ["admin"]


@pytest.mark.parametrize("path", ["oidc", "nothing", "session/x", ""])
async def test_a_way_that_is_not_configured_is_not_there(room: Room, path: str) -> None:
    async with room.client() as client:
        assert (await client.post(f"/api/access/{path}", json={"to": "/"})).status_code == 404


# Sessions.


async def test_a_name_that_an_attacker_planted_is_never_signed_in(room: Room) -> None:
    """Session fixation."""
    name = f"posthouse-session-{room.address.partition(':')[2]}"
    async with room.client(cookies=httpx.Cookies({name: "planted"})) as client:
        answer = await client.post("/api/access/token", json={"token": room.token})
    async with room.client(cookies=httpx.Cookies({name: "planted"})) as attacker:
        assert (await attacker.get("/api/who")).status_code == 401

    assert cookie(answer, name)["value"] != "planted"


async def test_a_new_sign_in_ends_the_session_before_it(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        old = httpx.Cookies(client.cookies)
        await client.post("/api/access/link", json={})
        await signed_in(room, client)
        assert (await client.get("/api/who")).status_code == 200
    async with room.client(cookies=old) as before:
        assert (await before.get("/api/who")).status_code == 401


async def test_signing_out_ends_the_session_on_the_server(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        kept = httpx.Cookies(client.cookies)
        answer = await client.post("/api/access/out", json={})
        assert cookie(answer, f"posthouse-session-{room.address.partition(':')[2]}")["max-age"] == "0"
    async with room.client(cookies=kept) as thief:
        assert (await thief.get("/api/who")).status_code == 401
    assert room.noted[-1] == ("console sign-out", "local", "token")


async def test_a_session_ends_when_it_is_idle_and_when_it_is_old(room: Room, clock: ManualClock) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        for _ in range(2):
            clock.advance(50)
            assert (await client.get("/api/who")).status_code == 200
        clock.advance(1)
        assert (await client.get("/api/who")).status_code == 401

        await client.post("/api/access/link", json={})
        await signed_in(room, client)
        clock.advance(61)
        assert (await client.get("/api/who")).status_code == 401


async def test_a_stream_ends_with_a_role_that_was_for_a_time() -> None:
    clock = ManualClock()
    end = clock.now() + 60
    access = Access(who=lambda scope: Who(name="ana", roles=frozenset(("operator",)), until=end))
    async with guarding(access, clock) as room, room.client() as client, client.stream("GET", "/api/stream") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "more"
        clock.advance(30)
        room.more.set()
        assert await anext(lines) == "more"
        clock.advance(31)
        room.more.set()
        assert [line async for line in lines] == []


async def test_a_stream_ends_when_its_reader_may_see_less_than_at_its_beginning() -> None:
    tenants = ["t1", "t2"]
    access = Access(who=lambda scope: Who(name="ana", roles=frozenset(("reader",)), tenants=frozenset(tenants)))
    async with guarding(access) as room, room.client() as client, client.stream("GET", "/api/stream") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "more"
        tenants.pop()
        room.more.set()
        assert [line async for line in lines] == []


async def test_a_stream_ends_with_the_session_of_its_reader(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        async with client.stream("GET", "/api/stream") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "more"
            room.more.set()
            assert await anext(lines) == "more"

            await client.post("/api/access/out", json={})
            room.more.set()

            async with asyncio.timeout(10):
                assert [line async for line in lines] == []


# Other sites.


FORGED = [
    {"origin": "https://evil.example", "sec_fetch_site": "cross-site"},
    {"origin": "https://evil.example", "sec_fetch_site": ""},
    {"origin": "https://evil.example", "sec_fetch_site": "same-origin"},
    {"origin": "null", "sec_fetch_site": ""},
    {"origin": "null", "sec_fetch_site": "same-origin"},
    {"origin": "http://127.0.0.1:1", "sec_fetch_site": "same-site"},
    {"origin": "http://127.0.0.1:1", "sec_fetch_site": ""},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "none"},
    {"origin": "", "sec_fetch_site": ""},
    {"origin": "http://[", "sec_fetch_site": ""},
]


async def test_another_site_cannot_act_with_the_cookie_of_an_operator(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
    for headers in FORGED:
        async with room.client(cookies=client.cookies, **headers) as forged:
            for method in ("POST", "PUT", "DELETE"):
                answer = await forged.request(method, "/api/acts/retry", json={"why": "mine"})
                assert answer.status_code == 403, (method, headers)
    assert room.did == 0


async def test_a_form_cannot_act(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
            "x/json",
        ):
            answer = await client.post(
                "/api/acts/retry", content=b'{"why": "mine"}', headers={"content-type": kind} if kind else {}
            )
            assert answer.status_code == 415, kind
    assert room.did == 0


async def test_the_page_itself_acts(room: Room) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        assert (await client.post("/api/acts/retry", json={"why": "mine"})).text == "done"
        only_origin = await client.post("/api/acts/retry", json={}, headers={"sec-fetch-site": ""})
    assert only_origin.status_code == 403  # an empty word is no word

    async with room.client(cookies=client.cookies, sec_fetch_site="") as older:
        assert (await older.post("/api/acts/retry", json={"why": "mine"})).text == "done"
    assert room.did == 2


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_cannot_ask_for_data(room: Room, site: str) -> None:
    async with room.client() as client:
        await signed_in(room, client)
        answer = await client.get("/api/who", headers={"sec-fetch-site": site})
        link = await client.get("/held", headers={"sec-fetch-site": site})

    assert answer.status_code == 403
    assert link.status_code == 200  # the interface may be linked to


async def test_a_name_that_is_not_the_consoles_is_refused(room: Room) -> None:
    """DNS rebinding: the stranger's name leads to 127.0.0.1 now."""
    port = room.address.partition(":")[2]
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        f"localhost.evil.example:{port}",
        "127.0.0.1@evil.example",
        f"127.0.0.1:{port}:evil",
        "",
        "127.1",
        "2130706433",
        "[::ffff:127.0.0.1]",
    ):
        for path in ("/", "/api/access/session"):
            answer = await raw(room, f"GET {path} HTTP/1.1", f"Host: {host}")
            assert answer.split()[1] == b"421", host
            assert b"the interface" not in answer


async def test_the_names_of_the_loopback_are_the_consoles(room: Room) -> None:
    """With any port: `ssh -L 9999:127.0.0.1:8470` is a way to it."""
    for host in (
        room.address,
        f"LOCALHOST:{room.address.partition(':')[2]}",
        "localhost:9999",
        "[::1]:8470",
        "localhost",
    ):
        assert (await raw(room, "GET / HTTP/1.1", f"Host: {host}")).split()[1] == b"200", host


async def test_two_hosts_or_none_are_refused(room: Room) -> None:
    for lines in ((f"Host: {room.address}", "Host: evil.example"), ("Host: evil.example", f"Host: {room.address}"), ()):
        assert (await raw(room, "GET /api/access/session HTTP/1.1", *lines)).split()[1] == b"400"


async def test_two_hosts_are_refused_where_the_server_lets_them_pass(clock: ManualClock) -> None:
    guard = Guard(Room().app(), access=Access(), clock=clock)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1") as client:
        answer = await client.get("/", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    assert answer.status_code == 400


# What browsers are told, and limits.


async def test_every_answer_tells_the_browser_what_not_to_allow(room: Room) -> None:
    async with room.client() as client:
        answers = [
            await client.get("/"),
            await client.get("/api/who"),
            await client.get("/api/access/session"),
            await client.post("/api/acts/x", json={}, headers={"origin": "https://evil.example"}),
            await client.get("/", headers={"host": "evil.example"}),
        ]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
    assert [answer.headers["cache-control"] for answer in answers[:4]] == ["no-cache"] + ["no-store"] * 3
    policy = HEADERS["content-security-policy"]
    for said in (
        "default-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "script-src 'self';",
    ):
        assert said in policy
    assert HEADERS["x-content-type-options"] == "nosniff"
    assert HEADERS["referrer-policy"] == "no-referrer"


async def test_a_body_has_a_largest_size_said_or_not(room: Room) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(LARGEST // 65_536 + 1):
            yield b" " * 65_536

    async with room.client(content_type="application/json") as client:
        await client.post("/api/access/token", json={"token": room.token})
        said = await client.post("/api/acts/x", content=b" " * (LARGEST + 1))
        unsaid = await client.post("/api/acts/x", content=endless())

    assert (said.status_code, unsaid.status_code) == (413, 413)
    assert room.did == 0


async def test_of_a_stranger_no_body_is_waited_for(room: Room) -> None:
    answer = await raw(
        room,
        "POST /api/acts/x HTTP/1.1",
        f"Host: {room.address}",
        f"Origin: http://{room.address}",
        "Content-Type: application/json",
        f"Content-Length: {LARGEST}",
        body=b"{",
    )

    assert answer.split()[1] == b"401"


async def test_of_a_stranger_a_small_body_is_read(room: Room) -> None:
    async with room.client(content_type="application/json") as client:
        for path in ("/api/access/token", "/held"):
            answer = await client.post(path, content=b" " * (OF_STRANGERS + 1))
            assert answer.status_code == 413, path
        await signed_in(room, client)


async def test_a_websocket_is_closed(room: Room) -> None:
    answer = await raw(
        room,
        "GET /api/who HTTP/1.1",
        f"Host: {room.address}",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    assert answer.split()[1] == b"401"


async def test_no_secret_is_in_the_log(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with room.client() as client:
            await client.post("/api/access/token", json={"token": "a-guess-that-may-be-half-right"})
            await signed_in(room, client)
            await client.post("/api/acts/retry", json={"why": "mine"})
            names = [*client.cookies.values()]

    lines = "\n".join(
        str(vars(line)) for line in caplog.records if not line.name.startswith("http")
    )  # these are the client's
    assert "signed in" in lines
    for secret in (*names, room.token, "a-guess-that-may-be-half-right"):
        assert secret not in lines


# Where it is mounted.


async def test_it_is_guarded_under_any_path(clock: ManualClock) -> None:
    async with guarding(Access(), clock, root="/ops/posthouse") as room, room.client() as client:
        assert (await client.get("/ops/posthouse/api/who")).status_code == 401
        answer = await client.post("/ops/posthouse/api/access/token", json={"token": room.token})
        assert cookie(answer, f"posthouse-session-{room.address.partition(':')[2]}")["path"] == "/ops/posthouse"
        assert (await client.get("/ops/posthouse/api/who")).json()["name"] == "local"


@pytest.mark.parametrize("root", ["/a", "/ap", "/api", "/a/"])
async def test_a_server_that_leaves_the_mount_out_of_the_path_opens_nothing(clock: ManualClock, root: str) -> None:
    guard = Guard(Room().app(), access=Access(), clock=clock)
    for path in ("/api/who", f"{root}/api/who"):
        transport = httpx.ASGITransport(guard, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get(path)
        assert answer.status_code == 401 or answer.text == "the interface", path

"""Who may ask what."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from posthouse.governance.registry.door import UsersDoor
from posthouse.governance.registry.users import Role, User, drop_user, hashed, keep_user, new_token
from tests.integration.registry.client import ORDER, Client, schema_body, served

PASSWORD = "correct horse"
SECRET = hashed(PASSWORD)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    for name, role in (("reader", Role.READ), ("writer", Role.WRITE), ("admin", Role.ADMIN)):
        keep_user(file, User(name, role, SECRET))
    return file


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def spoil(users: Path) -> None:
    users.write_text("nonsense")


async def status(client: Client, headers: dict[str, str], method: str, path: str, body: object = None) -> int:
    answer = await client.http.request(method, path, json=body, headers=headers)
    return answer.status_code


ASKED: list[tuple[str, str, object, Role]] = [
    ("GET", "/subjects", None, Role.READ),
    ("POST", "/subjects/a", schema_body(ORDER), Role.READ),
    ("POST", "/compatibility/subjects/a/versions", schema_body(ORDER), Role.READ),
    ("POST", "/subjects/a/versions", schema_body(ORDER), Role.WRITE),
    ("DELETE", "/subjects/a/versions/1", None, Role.WRITE),
    ("DELETE", "/subjects/a", None, Role.WRITE),
    ("DELETE", "/subjects/a?permanent=true", None, Role.ADMIN),
    ("DELETE", "/subjects/a/versions/1?permanent=TRUE", None, Role.ADMIN),
    ("PUT", "/config", {"compatibility": "FULL"}, Role.ADMIN),
    ("DELETE", "/config/a", None, Role.ADMIN),
    ("PUT", "/mode/a", {"mode": "READONLY"}, Role.ADMIN),
    ("DELETE", "/mode", None, Role.ADMIN),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), ASKED, ids=[f"{m} {p}" for m, p, *_ in ASKED])
async def test_a_role_may_do_what_it_says(users: Path, method: str, path: str, body: object, needed: Role) -> None:
    async with served("sqlite://", door=UsersDoor(users)) as client:
        for name, role in (("reader", Role.READ), ("writer", Role.WRITE), ("admin", Role.ADMIN)):
            got = await status(client, basic(name), method, path, body)
            assert (got == 403) is (role < needed), (name, got)
            assert got != 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("reader", "wrong"),
        basic("reader", ""),
        basic("nobody"),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"reader").decode()},
        {"Authorization": "Bearer correct horse"},
        {"Authorization": f"Bearer {new_token('reader')}"},
        {"Authorization": "Digest x"},
    ],
)
async def test_strangers_stay_outside(users: Path, headers: dict[str, str]) -> None:
    async with served("sqlite://", door=UsersDoor(users)) as client:
        for path in ("/subjects", "/schemas/ids/1", "/config"):
            answer = await client.http.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
            assert answer.headers["www-authenticate"].startswith("Basic")


async def test_a_token_opens_the_door(users: Path) -> None:
    token = new_token("robot")
    keep_user(users, User("robot", Role.READ, hashed(token)))
    async with served("sqlite://", door=UsersDoor(users)) as client:
        assert await status(client, {"Authorization": f"Bearer {token}"}, "GET", "/subjects") == 200
        assert await status(client, {"Authorization": f"bearer {token}"}, "GET", "/subjects") == 200
        assert await status(client, {"Authorization": f"Bearer {token}x"}, "GET", "/subjects") == 401
        assert await status(client, {"Authorization": f"Bearer {token}"}, "PUT", "/config") == 403


async def test_who_was_taken_out_is_out_at_once(users: Path) -> None:
    async with served("sqlite://", door=UsersDoor(users)) as client:
        assert await status(client, basic("reader"), "GET", "/subjects") == 200
        assert await status(client, basic("reader"), "GET", "/subjects") == 200
        drop_user(users, "reader")
        assert await status(client, basic("reader"), "GET", "/subjects") == 401
        assert await status(client, basic("admin"), "GET", "/subjects") == 200


async def test_a_file_of_users_that_was_spoilt_lets_nobody_in(users: Path) -> None:
    async with served("sqlite://", door=UsersDoor(users)) as client:
        assert await status(client, basic("admin"), "GET", "/subjects") == 200
        spoil(users)
        answer = await client.http.get("/subjects", headers=basic("admin"))
        assert answer.status_code == 500
        assert "nonsense" not in answer.text
        os.unlink(users)
        assert await status(client, basic("admin"), "GET", "/subjects") == 500


async def test_a_body_is_not_read_from_those_who_may_not_send_it(users: Path) -> None:
    async with served("sqlite://", door=UsersDoor(users), most_bytes=1_000) as client:
        large = {"schema": "x" * 2_000}
        assert await status(client, basic("reader"), "POST", "/subjects/a/versions", large) == 403
        assert await status(client, basic("writer"), "POST", "/subjects/a/versions", large) == 413

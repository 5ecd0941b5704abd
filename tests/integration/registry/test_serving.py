"""`posthouse registry`: a registry as a process, and the file of its users."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner

from posthouse.cli import app
from posthouse.errors import ConfigurationError, StoreUnavailable
from posthouse.governance.registry.app import registry_app
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.serving import Listening, check_listening, is_loopback
from posthouse.governance.registry.users import Role, owner_of, read_users
from posthouse.local.tls import Files
from tests.integration.registry.client import ORDER, schema_body
from tests.integration.registry.process import registry_process


def run(*arguments: str, input: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["registry", *arguments], input=input, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_registry_that_is_ended_and_started_again_knows_everything(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    with registry_process(store) as url:
        answer = httpx.post(f"{url}/subjects/a%2Fb/versions", json=schema_body(ORDER))
        assert answer.json() == {"id": 1}
    with registry_process(store) as url:
        assert httpx.get(f"{url}/subjects").json() == ["a/b"]
        assert httpx.get(f"{url}/subjects/a%2Fb/versions/latest").json()["id"] == 1


def test_two_registries_share_one_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    with registry_process(store) as one, registry_process(store) as other:
        assert httpx.post(f"{one}/subjects/a/versions", json=schema_body(ORDER)).json() == {"id": 1}
        assert httpx.post(f"{other}/subjects/b/versions", json=schema_body(ORDER)).json() == {"id": 1}
        assert httpx.get(f"{one}/subjects").json() == ["a", "b"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "registry.example"])
def test_it_does_not_listen_beyond_the_loopback_for_everybody(host: str) -> None:
    code, _, said = run("serve", "--host", host, "--store", "sqlite://")
    assert code == 2
    assert "--users" in said


def test_with_users_it_may_listen_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = tmp_path / "users"
    users.touch()
    check_listening(Listening(host="0.0.0.0", users=users, most_bytes=1, patience=1.0))
    assert "plain text" in caplog.text


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_the_loopback_is_known(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    missing = Files(ca=str(tmp_path / "gone.pem"), cert=str(tmp_path / "missing.pem"))
    listening = Listening(host="0.0.0.0", tls=missing, most_bytes=1, patience=1.0)
    with pytest.raises(ConfigurationError) as refused:
        check_listening(listening)
    assert len(refused.value.problems) == 3


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, said = run("serve", "--store", "sqlite://", "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "cannot listen on 127.0.0.1" in said


@pytest.mark.parametrize("store", ["mysql://x", "sqlite://host/x.db", "sqlite:///x.db?synchronous=OFF"])
def test_a_store_that_is_none_is_said_so(store: str) -> None:
    assert run("serve", "--store", store)[0] == 2


async def test_a_database_that_is_away_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(StoreUnavailable):
        await open_ledger(f"postgresql://nobody@127.0.0.1:{port}/none").open()


def test_a_registry_whose_store_is_away_ends_with_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "posthouse", "registry", "serve", "--port", "0"]
    missing = f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'registry.db'}"
    done = subprocess.run([*command, "--store", missing], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "unable to open" in done.stderr
    assert "Traceback" not in done.stderr


def test_tls_is_spoken_with_a_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*request, *names], check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("openssl is not installed: TLS of the registry was NOT checked")
    with registry_process("sqlite://", "--tls-cert", str(certificate), "--tls-key", str(key)) as url:
        assert url.startswith("https://")
        trust = ssl.create_default_context(cafile=certificate)
        assert httpx.get(f"{url}/subjects", verify=trust).json() == []


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    file = str(tmp_path / "users")
    assert (
        run("user", "add", "anna", "--users", file, "--role", "write", "--password-stdin", input="correct horse\n")[0]
        == 0
    )
    code, token, _ = run("user", "add", "robot", "--users", file, "--token")
    assert code == 0
    assert owner_of(token.strip()) == "robot"
    assert token.strip() not in Path(file).read_text()
    assert read_users(Path(file))["robot"].knows(token.strip())
    assert read_users(Path(file))["anna"].role is Role.WRITE
    assert json.loads(run("user", "list", "--users", file, "--json")[1]) == [
        {"name": "anna", "role": "write"},
        {"name": "robot", "role": "read"},
    ]
    assert "anna" in run("user", "list", "--users", file)[1]
    assert run("user", "remove", "anna", "--users", file)[0] == 0
    assert run("user", "remove", "anna", "--users", file)[0] == 2


def test_a_password_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "users")
    code, shown, _ = run("user", "add", "anna", "--users", file, input="correct horse\n")
    assert code == 0
    assert "correct horse" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "an na"), "not a user's name"),
        (("add", "anna", "--role", "king"), "no role 'king'"),
        (("add", "anna", "--password-stdin"), "a password has"),
    ],
)
def test_a_user_that_cannot_be_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, said = run("user", *arguments, "--users", str(tmp_path / "users"), input="short\n")
    assert code == 2
    assert words in said
    assert not (tmp_path / "users").exists()


async def test_an_application_on_a_server_of_ones_own_opens_its_ledger_itself(tmp_path: Path) -> None:
    app = registry_app(open_ledger(f"sqlite:///{tmp_path / 'registry.db'}"))
    config = uvicorn.Config(app, port=0, log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
            assert (await http.get("/subjects")).json() == []
        server.should_exit = True
        await serving

"""`posthouse console` as a real process: it serves what can be shown, makes nothing, and ends when it is told to."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from posthouse.console.access.guard import KEY
from tests.kit.servers.tls import Authority
from tests.kit.shell import Shell
from tests.kit.waiting import until

SHOP = """
from posthouse import Service

orders = Service("orders", owner="sales")
"""


class Desk(Shell):
    """A folder with one service that can be imported, and one that cannot."""

    def furnish(self) -> None:
        (self.folder / "shop.py").write_text(SHOP)
        (self.folder / "broken.py").write_text('raise RuntimeError("no settings")')

    @contextmanager
    def console(self, *arguments: str) -> Iterator[httpx.Client]:
        """One that is served, and somebody who came by the address that it told."""
        self.start(*arguments, "--http", "127.0.0.1:0", verb="console", says=True)
        self.wait_until(lambda: bool(self.places()), "serving")
        place = httpx.URL(self.places()[-1])
        base = place.copy_with(raw_path=b"/", fragment="")
        with httpx.Client(base_url=base, headers={"sec-fetch-site": "same-origin"}, timeout=10) as client:
            token = place.fragment.removeprefix("token=")
            assert client.get("/api/services").status_code == 401
            answer = client.post("/api/access/token", json={"token": token})
            client.headers[KEY] = answer.json()["data"]["key"]
            yield client

    def places(self) -> list[str]:
        return re.findall(r"console is at (https?://\S+)", self.log())

    def listing(self) -> list[str]:
        return sorted(
            str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if "__pycache__" not in str(file)
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Desk(tmp_path) as made:
        made.furnish()
        yield made


def test_what_cannot_be_imported_is_told_of_until_it_can_be_and_the_rest_is_shown(desk: Desk) -> None:
    with desk.console("shop", "broken") as client:
        answer = client.get("/api/services").json()
        assert [one["name"] for one in answer["data"]["items"]] == ["orders"]
        [problem] = answer["problems"]
        assert problem["service"] == "broken"
        assert "no settings" in problem["what"]

        (desk.folder / "broken.py").write_text(SHOP.replace("orders", "billing"))
        until(lambda: not client.get("/api/services").json()["problems"], "it was mended")
        services = client.get("/api/services").json()["data"]["items"]
    assert [one["name"] for one in services] == ["orders", "billing"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from posthouse import Nothing", "cannot import name 'Nothing'"),
        ("import a_library_that_nobody_installed", "No module named 'a_library_that_nobody_installed'"),
        ("from posthouse import Service\n\norders = Service(", "was never closed"),
    ],
    ids=["of a name that is not there", "of a library that is not there", "with a mistake in its syntax"],
)
def test_an_import_that_fails_says_where_and_hides_nobody_else(desk: Desk, source: str, said: str) -> None:
    (desk.folder / "broken.py").write_text(source)
    with desk.console("shop", "broken") as client:
        for page in ("services", "home", "map", "health", "held", "sagas"):
            answer = client.get(f"/api/{page}")
            assert answer.status_code == 200, (page, answer.text)
            [what] = [one["what"] for one in answer.json()["problems"] if one["service"] == "broken"]
            assert said in what, (page, what)
        services = client.get("/api/services").json()["data"]["items"]
    assert [one["name"] for one in services] == ["orders"]


def test_a_session_by_tls_is_kept_where_only_this_host_by_tls_is_told_of_it(desk: Desk) -> None:
    """And no other server of this machine is put out of the browser's reach by strict transport."""
    authority = Authority(desk.folder / "tls")
    certificate, key = authority.give("server")
    desk.start(
        *("shop", "--http", "127.0.0.1:0", "--tls-cert", f"{certificate}", "--tls-key", f"{key}"),
        verb="console",
        says=True,
    )
    desk.wait_until(lambda: bool(desk.places()), "serving")
    place = httpx.URL(desk.places()[-1])
    assert place.scheme == "https"
    trust = ssl.create_default_context(cafile=authority.certificate)
    site = {"sec-fetch-site": "same-origin"}
    base = place.copy_with(raw_path=b"/", fragment="")
    with httpx.Client(base_url=base, verify=trust, headers=site, timeout=10) as client:
        answer = client.post("/api/access/token", json={"token": place.fragment.removeprefix("token=")})
        assert answer.headers["set-cookie"].startswith("__Host-posthouse-session=")
        assert "; Secure" in answer.headers["set-cookie"]
        assert "strict-transport-security" not in answer.headers
        client.headers[KEY] = answer.json()["data"]["key"]
        assert client.get("/api/services").status_code == 200


def test_it_makes_nothing_and_ends_with_code_0(desk: Desk) -> None:
    before = desk.listing()
    with desk.console("shop") as client:
        assert client.get("/api/services").status_code == 200
    [process] = desk.running
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0, desk.log()
    assert desk.listing() == sorted([*before, "run.log"])


def test_the_link_signs_in_once_and_another_is_printed_on_request(desk: Desk) -> None:
    with desk.console("shop") as client:
        first = desk.places()[-1].partition("#token=")[2]
        assert client.post("/api/access/token", json={"token": first}).status_code == 401
        assert client.post("/api/access/link", json={}).status_code == 200
        until(lambda: len(desk.places()) == 2, "another was printed")
        token = desk.places()[-1].partition("#token=")[2]
        assert client.post("/api/access/token", json={"token": token}).status_code == 200
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421


def test_a_public_address_without_a_way_to_know_who_asks_is_refused(desk: Desk) -> None:
    assert desk.start("shop", "--http", "0.0.0.0:0", verb="console").wait(timeout=20) == 2
    assert "would be open to whoever reaches that address: give --oidc-issuer or --proxy-keys" in " ".join(
        desk.log().split()
    )


def test_a_second_one_at_the_same_place_is_told_that_the_port_is_taken(desk: Desk) -> None:
    with desk.console("shop") as client:
        again = desk.start("shop", "--http", f"127.0.0.1:{client.base_url.port}", verb="console")
        assert again.wait(timeout=20) == 2
    assert f"port {client.base_url.port} is taken" in " ".join(desk.log().split())


def test_where_nothing_can_be_imported_there_is_nothing_to_serve(desk: Desk) -> None:
    assert desk.start("broken", verb="console").wait(timeout=20) == 2
    assert "no settings" in desk.log()


def test_it_ends_without_a_word_while_a_browser_listens(desk: Desk) -> None:
    with desk.console("shop") as client, client.stream("GET", "/api/live") as live:
        heard = live.iter_raw()
        assert b"retry" in next(heard)
        [process] = desk.running
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0, desk.log()
        assert b"".join(heard).strip() == b"" or live.is_stream_consumed
    assert "Traceback" not in desk.log()
    assert "Cancel" not in desk.log()


def test_a_request_that_is_not_finished_is_cut_off(desk: Desk) -> None:
    """However many there are: others are answered meanwhile."""
    with desk.console("shop") as client, contextlib.ExitStack() as stack:
        place = (client.base_url.host, client.base_url.port)
        slow = [stack.enter_context(socket.create_connection(place)) for _ in range(150)]
        for one in slow:
            one.sendall(b"GET /api/services HTTP/1.1\r\nHost: ")
        assert client.get("/api/services").status_code == 200
        until(lambda: sum(map(is_cut, slow)) >= 50, "those that are too many are cut off at once", within=5)
        until(lambda: all(map(is_cut, slow)), "and all of them once they had their time", within=30)
        assert client.get("/api/services").status_code == 200


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True

"""The server: what it answers, and that no client holds it up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from posthouse.local.listeners import listener_context
from posthouse.local.tls import Files
from posthouse.watch.address import Address, listening
from posthouse.watch.http import LARGEST_HEAD, PLACES, Answer, Request, Server, said
from tests.kit.servers.tls import Authority


async def echo(request: Request) -> Answer:
    if request.path == "/broken":
        raise ValueError("password=hunter2")
    if request.path == "/large":
        return Answer(200, b"x" * 5_000_000)
    query = ",".join(f"{name}={value}" for name, value in sorted(request.query.items()))
    return said(200, f"{request.path} {query} {request.headers.get('accept', '')}")


@contextmanager
def served(answers: Callable[..., object] = echo, **options: float) -> Iterator[Server]:
    server = Server(listening(Address("127.0.0.1", 0)), answers, **options)  # type: ignore[arg-type]
    with server.serving():
        yield server


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as made:
        yield made


def get(server: Server, path: str, **options: object) -> httpx.Response:
    return httpx.get(f"http://{server.address}{path}", **options)  # type: ignore[arg-type]


def exchange(server: Server, sent: bytes) -> bytes:
    """What comes back to raw bytes, until the end."""
    with socket.create_connection(server.address, timeout=10) as client:
        client.sendall(sent)
        found = b""
        while more := client.recv(65_536):
            found += more
        return found


def test_a_page_is_answered_with_its_query_and_headers(server: Server) -> None:
    answer = get(server, "/a/b?consumer=shop.billing&empty=", headers={"Accept": "text/x"})
    assert (answer.status_code, answer.text) == (200, "/a/b consumer=shop.billing,empty= text/x\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


def test_head_has_the_headers_alone(server: Server) -> None:
    answer = httpx.head(f"http://{server.address}/a")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_get_and_head_is_taken(server: Server, method: str) -> None:
    answer = httpx.request(method, f"http://{server.address}/a", content=b"x" * 100_000)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert method in answer.text


def test_a_large_answer_comes_whole(server: Server) -> None:
    assert len(get(server, "/large").content) == 5_000_000


def test_an_error_is_told_in_the_log_and_not_to_the_client(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    answer = get(server, "/broken")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "/broken could not be answered" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / SPDY/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET /?" + b"&".join(b"a%d=1" % n for n in range(100)) + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(server: Server, sent: bytes) -> None:
    assert exchange(server, sent).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert get(server, "/a").status_code == 200


def test_a_giant_header_is_refused(server: Server) -> None:
    sent = b"GET / HTTP/1.1\r\nx: " + b"y" * (4 * LARGEST_HEAD)
    assert exchange(server, sent).startswith(b"HTTP/1.1 431 ")
    assert get(server, "/a").status_code == 200


def test_half_a_request_is_given_up_in_time_also_when_it_drips() -> None:
    with served(send_within=0.3) as server, socket.create_connection(server.address, timeout=10) as client:
        answered = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not answered.wait(0.02):
                    client.sendall(b"G")

        dripping = threading.Thread(target=drip)
        began = time.monotonic()
        dripping.start()
        found = client.recv(65_536)
        answered.set()
        dripping.join()
    assert found.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 5


def test_silent_clients_beyond_all_places_keep_nobody_out(server: Server) -> None:
    with ExitStack() as open_connections:
        silent = []
        for _ in range(3 * PLACES):
            silent.append(open_connections.enter_context(socket.create_connection(server.address, timeout=10)))
            silent[-1].sendall(b"GET /metrics HTT")
        began = time.monotonic()
        for _ in range(10):
            assert get(server, "/a", timeout=5).status_code == 200
        assert time.monotonic() - began < 4
        assert silent[0].recv(1) == b"", "the oldest made room"


def test_clients_that_only_connect_take_no_slow_answer_away() -> None:
    asked, free = threading.Event(), threading.Event()

    async def slowly(request: Request) -> Answer:
        if request.path == "/metrics":
            asked.set()
            await asyncio.to_thread(free.wait, 10)
        return said(200, "fine")

    server = Server(listening(Address("127.0.0.1", 0)), slowly)
    with (
        server.serving(),
        ExitStack() as open_connections,
        socket.create_connection(server.address, timeout=10) as scrape,
    ):
        scrape.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert asked.wait(10)
        for _ in range(2 * PLACES):
            open_connections.enter_context(socket.create_connection(server.address, timeout=10))
        assert get(server, "/a", timeout=5).status_code == 200, "all of them were taken before this one"
        free.set()
        assert scrape.recv(65_536).startswith(b"HTTP/1.1 200 ")


async def test_clients_that_cannot_be_taken_are_a_line_a_minute(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    get(server, "/a")
    for _ in range(500):
        context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        server._loop.call_soon_threadsafe(server._loop.call_exception_handler, context)
    await asyncio.to_thread(get, server, "/a")
    assert [record.getMessage() for record in caplog.records if "Too many open files" in record.getMessage()] == [
        "a connection could not be taken: [Errno 24] Too many open files; others wait, and it is tried again each second"
    ]
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_clients_that_ask_and_never_read_keep_nobody_out(server: Server) -> None:
    with ExitStack() as open_connections:
        for _ in range(PLACES + 10):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(server.address)
            client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            open_connections.enter_context(client)
        assert get(server, "/a", timeout=5).status_code == 200


def test_the_port_is_free_when_the_block_ends() -> None:
    with served() as server, socket.create_connection(server.address, timeout=10) as client:
        client.sendall(b"GET /")
        threads = threading.active_count()
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert threading.active_count() == threads - 1
    listening(server.address).close()


def test_whoever_shakes_no_hands_is_left_in_time(tmp_path: Path) -> None:
    """And holds nobody up meanwhile."""
    authority = Authority(tmp_path)
    certificate, key = authority.give("server")
    tls = listener_context(Files(cert=str(certificate), key=str(key)))
    server = Server(listening(Address("127.0.0.1", 0)), echo, send_within=1.0, tls=tls)
    with server.serving(), socket.create_connection(server.address, timeout=10) as silent:
        trust = ssl.create_default_context(cafile=authority.certificate)
        assert httpx.get(f"https://{server.address}/a", verify=trust).text.startswith("/a")
        assert silent.recv(1) == b""

"""Where the figures are served: how it is written, and what is said where that cannot be."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from posthouse.errors import ConfigurationError
from posthouse.watch.address import Address, address_of, listening, parsed


@pytest.mark.parametrize(
    ("text", "address", "public"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464), False),
        ("127.0.0.2:0", Address("127.0.0.2", 0), False),
        ("localhost:1", Address("localhost", 1), False),
        ("[::1]:9464", Address("::1", 9464), False),
        ("0.0.0.0:9464", Address("0.0.0.0", 9464), True),
        ("[::]:65535", Address("::", 65_535), True),
        ("worker-1:9464", Address("worker-1", 9464), True),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address, public: bool) -> None:
    assert parsed(text) == address
    assert str(address) == text
    assert address.public is public


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (":9464", "127.0.0.1:9464 for this host alone, 0.0.0.0:9464 for whoever reaches it"),
        ("9464", "127.0.0.1:9464 for this host alone, 0.0.0.0:9464 for whoever reaches it"),
        ("localhost", "the port is missing: write localhost:9464"),
        ("[::1]", "the port is missing: write [::1]:9464"),
        ("::1:9464", "an address with colons stands in brackets: write [::1]:9464"),
        ("localhost:http", "not 'http': write localhost:9464"),
        ("localhost:", "not '': write localhost:9464"),
        ("localhost:65536", "a port is a number from 0 to 65535, not '65536'"),
        ("localhost:-1", "a port is a number from 0 to 65535, not '-1'"),
        ("localhost:²", "a port is a number from 0 to 65535, not '²'"),
        ("localhost:1_0", "a port is a number from 0 to 65535, not '1_0'"),
        ("http://localhost:9464", "without http://: write localhost:9464"),
        ("localhost:9464/metrics", "without a path: write localhost:9464"),
        (":x", "the host is missing"),
        ("", "the port is missing"),
    ],
)
def test_what_is_no_address_is_answered_with_one(text: str, instead: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parsed(text)
    assert str(refused.value).startswith(f"--http {text}: ")
    assert instead in str(refused.value)


def test_port_0_is_any_that_is_free() -> None:
    with closing(listening(Address("127.0.0.1", 0))) as listener:
        assert address_of(listener).port > 1023


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with closing(listening(Address("127.0.0.1", 0))) as listener:
        taken = address_of(listener)
        with pytest.raises(ConfigurationError) as refused:
            listening(taken)
    assert f"--http {taken}: port {taken.port} is taken" in str(refused.value)
    assert "--http 127.0.0.1:0" in str(refused.value)


def test_a_port_that_was_just_left_is_free() -> None:
    with closing(listening(Address("127.0.0.1", 0))) as listener:
        place = address_of(listener)
        with socket.create_connection(place) as client:
            listener.setblocking(True)
            served, _ = listener.accept()
            served.close()  # ours ends first, and lingers
            assert client.recv(1) == b""
    listening(place).close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (Address("192.0.2.1", 9464), "192.0.2.1 is no address of this host: name one, as in 127.0.0.1:9464"),
        (Address("nowhere.invalid", 9464), "no address is known for 'nowhere.invalid'"),
        (Address("a" * 300, 9464), "no address is known for"),
    ],
)
def test_an_address_of_somebody_else_is_refused(address: Address, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        listening(address)
    assert why in str(refused.value)

"""Address: where the figures are served, as `HOST:PORT` is written, and the socket that listens there."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import NamedTuple

from posthouse.errors import ConfigurationError

PORT = 9464
"""What others look for figures at, where nobody says otherwise."""
DEFAULT = f"127.0.0.1:{PORT}"
WAITING = 128
"""Connections that the kernel keeps until they are taken."""


class Address(NamedTuple):
    """A host and a port. Port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def public(self) -> bool:
        """Whether others than this host may reach it."""
        try:
            return not ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host != "localhost"


def parsed(text: str, option: str = "--http", usual: int = PORT) -> Address:
    """An address as somebody wrote it. Raises ConfigurationError, which says how to write it, with the usual port."""
    given = text.strip()
    if "://" in given:
        raise _wrong(
            option, text, f"it is HOST:PORT, without {given.partition('://')[0]}://", given.partition("://")[2]
        )
    if "/" in given:
        raise _wrong(option, text, "it is HOST:PORT, without a path", given.partition("/")[0])
    if given.isdecimal() or (given.startswith(":") and given[1:].isdecimal()):
        port = given.lstrip(":")
        raise ConfigurationError(
            f"{option} {text}: say for whom: 127.0.0.1:{port} for this host alone, 0.0.0.0:{port} for whoever reaches it"
        )
    host, colon, port = given.rpartition(":")
    if not colon or given.endswith("]"):
        raise _wrong(option, text, "the port is missing", f"{given}:{usual}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise _wrong(option, text, "an address with colons stands in brackets", f"[{host}]:{port}")
    if not host:
        raise _wrong(option, text, "the host is missing", f"127.0.0.1:{port}")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise _wrong(option, text, f"a port is a number from 0 to 65535, not {port!r}", f"{host}:{usual}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def listening(address: Address, option: str = "--http") -> socket.socket:
    """A socket that listens there. Raises ConfigurationError where that cannot be: the port is taken, the address is of
    another host, the port is for the administrator."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"{option} {address}: no address is known for {address.host!r}: name one of this host, as in {DEFAULT}"
        ) from error
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
        made.bind(place)
        made.listen(WAITING)
    except OSError as error:
        made.close()
        raise ConfigurationError(f"{option} {address}: {_why(address, error)}") from error
    made.setblocking(False)
    return made


def address_of(listener: socket.socket) -> Address:
    """Where it listens: the port is the one that was found, where any would do."""
    host, port, *_ = listener.getsockname()
    return Address(host, port)


def _why(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {address.port} is taken, another process listens there. Name another one, or 0 for any that is free: "
            f"--http {Address(address.host, 0)}; `ss -ltnp 'sport = :{address.port}'` shows who it is"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address.host} is no address of this host: name one, as in 127.0.0.1:{address.port} or 0.0.0.0:{address.port}"
    if error.errno == errno.EACCES:
        return (
            f"port {address.port} is for the administrator: name one from 1024 on, as in {Address(address.host, PORT)}"
        )
    return f"nobody can listen there: {error.strerror or error}"


def _wrong(option: str, text: str, why: str, instead: str) -> ConfigurationError:
    return ConfigurationError(f"{option} {text}: {why}: write {instead}")

"""Serving a registry: where it listens, and the refusal to listen where it must not."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import uvicorn

from posthouse.errors import ConfigurationError
from posthouse.governance.registry.app import registry_app
from posthouse.governance.registry.door import Door, Known, KnownDoor, OpenDoor, UsersDoor
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.workers import WorkerJudge
from posthouse.local.connections import patient_protocol
from posthouse.local.listeners import listener_context, warn_of_plain
from posthouse.local.tls import Files

log = logging.getLogger("posthouse.governance.registry")

MOST_CONNECTIONS = 500
"""More at a time are told to come back later."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where a registry listens. `users` is the file of those who may ask, `known` knows others; `tls` are the files of a listener
    that speaks it."""

    host: str = "127.0.0.1"
    port: int = 8081
    users: Path | None = None
    known: Known | None = None
    tls: Files = Files()
    most_bytes: int
    patience: float

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "https" if self.tls.cert else "http"


async def serve(url: str, listening: Listening, say: Callable[[str], None]) -> None:
    """Serve the registry that is kept at `url` until a signal ends it. `say` is told where, once it listens.

    Raises ConfigurationError with everything that is wrong, and StoreErrors of the ledger.
    """
    tls = check_listening(listening)
    ledger = open_ledger(url)
    judge = WorkerJudge(patience=listening.patience / 2)
    app = registry_app(
        ledger,
        door=_door(listening),
        judge=judge,
        opened=True,
        loopback=is_loopback(listening.host) and listening.known is None,
        most_bytes=listening.most_bytes,
        patience=listening.patience,
    )
    with _listener(listening) as listener:
        await ledger.open()
        config = uvicorn.Config(
            app,
            http=patient_protocol(),
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        config.load()
        config.ssl = tls
        try:
            server = _Server(config, lambda: say(_address(listening, listener)), judge.aclose)
            await server.serve(sockets=[listener])
        finally:
            await judge.aclose()
            await ledger.aclose()


def _door(listening: Listening) -> Door:
    users = UsersDoor(listening.users) if listening.users else None
    return KnownDoor(listening.known, users) if listening.known else users or OpenDoor()


def check_listening(listening: Listening) -> ssl.SSLContext | None:
    """TLS as it is to be spoken. Raises ConfigurationError where the registry would be open to strangers, or TLS is only half set
    up."""
    problems: list[str] = []
    if listening.users is None and listening.known is None and not is_loopback(listening.host):
        problems.append(
            f"on {listening.host} everybody who reaches this machine could change schemas: name the users with --users FILE "
            "(`posthouse registry user add` makes one), give --oidc-issuer or --proxy-keys, or listen on 127.0.0.1"
        )
    if listening.users is not None and not listening.users.is_file():
        problems.append(f"there is no file {listening.users}")
    tls = None
    try:
        tls = listener_context(listening.tls)
    except ConfigurationError as error:
        problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    if tls is None and not is_loopback(listening.host):
        warn_of_plain(log, f"http://{listening.host}:{listening.port}")
    return tls


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(config)
        self._tell = started
        self._ending = ending

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End well on a signal. Uvicorn would raise it once more when all is done, and the process would die of it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Comparisons are given up first: they may take longer than requests are given to end."""
        await self._ending()
        await super().shutdown(sockets=sockets)


def _listener(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        return socket.create_server((listening.host, listening.port), family=family, backlog=512)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {listening.host}, port {listening.port}: {error}") from error


def _address(listening: Listening, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{listening.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

"""`posthouse watch`: the figures of some stores and brokers, served while nobody runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Annotated

import typer

from posthouse.app import App, apps_of
from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.options import Prefix, TlsCert, TlsClientCa, TlsKey, tls_files
from posthouse.cli.signals import stopping
from posthouse.cli.target import Targets, load_all
from posthouse.local.listeners import listener_context
from posthouse.outage import AWAY
from posthouse.watch.address import DEFAULT, listening, parsed
from posthouse.watch.serving import prefix_of, serving

ENDS_WITHIN = 10.0
"""Seconds from SIGTERM to the end."""


def watch(
    targets: Targets,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve them; port 0 takes any that is free.")
    ] = DEFAULT,
    prefix: Prefix = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    log_level: Annotated[Level, typer.Option(help="The least severe line that is logged.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
) -> None:
    """Serve the figures of the stores of some services, and run nothing.

    /metrics and /scale are read from stores and brokers when somebody asks, ages by the clock of the database: they grow
    while every worker is dead. A store or a broker may be away, also at the start: its figures say so. It counts as no
    worker, makes nothing, and ends with code 0 at SIGTERM or Ctrl-C.
    """
    address, prefix = parsed(http), prefix_of(prefix)
    tls = listener_context(tls_files(tls_cert, tls_key, tls_client_ca))
    services = load_all(targets)
    log_to_stderr(log_level, as_json=log_json)
    asyncio.run(_watch(apps_of(services), listening(address), prefix, tls))


async def _watch(apps: Sequence[App], listener: socket.socket, prefix: str, tls: ssl.SSLContext | None) -> None:
    stop = asyncio.Event()
    with stopping(stop, within=ENDS_WITHIN):
        stopped = asyncio.create_task(stop.wait())
        looking = asyncio.create_task(_look(apps))
        try:
            async with serving(listener, apps, runs=False, prefix=prefix, tls=tls):
                await asyncio.wait([looking, stopped], return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
                await stopped
        finally:
            looking.cancel()
            stopped.cancel()
            for app in apps:
                await app.aclose()


async def _look(apps: Sequence[App]) -> None:
    """What is wrong with a store ends the watch; one that is only away is told of by its figures."""
    for app in apps:
        with contextlib.suppress(*AWAY):
            await app.opened.look()

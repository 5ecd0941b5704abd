"""`posthouse console`: the console over some services, in a browser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.output import aim, say
from posthouse.cli.signals import stopping
from posthouse.cli.target import Targets, services_of
from posthouse.errors import ConfigurationError
from posthouse.service import Service
from posthouse.watch.address import address_of, listening, parsed

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from posthouse.console.estate import Estate

DEFAULT = "127.0.0.1:8470"
ENDS_WITHIN = 10.0
"""Seconds from SIGTERM to the end."""


def console(
    targets: Targets,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve it; port 0 takes any that is free.")
    ] = DEFAULT,
    log_level: Annotated[Level, typer.Option(help="The least severe line that is logged.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
) -> None:
    """Open the console: what flows, what is stuck, what it means, what to press.

    It looks at the stores of the services, makes nothing and runs nothing. A target that cannot be imported, and a store that
    is away or older, is told of on the page while the rest works. It ends with code 0 at SIGTERM or Ctrl-C.
    """
    try:
        from posthouse.console.application import application
    except ImportError as error:
        raise ConfigurationError(
            f"the console needs {error.name}, which is not installed: pip install 'posthouse[console]'"
        ) from error
    address = parsed(http)
    aim(*targets)
    estate = estate_of(targets)
    log_to_stderr(log_level, as_json=log_json)
    asyncio.run(_serve(application(estate), listening(address)))


def estate_of(targets: Sequence[str]) -> Estate:
    """The services of all targets that can be imported; the others are its problems, and are tried again. Raises
    ConfigurationError where none can be."""
    from posthouse.console.estate import Estate

    services: dict[int, Service] = {}
    problems: dict[str, ConfigurationError] = {}
    for target in targets:
        try:
            services |= {id(service): service for service in services_of(target)}
        except ConfigurationError as error:
            problems[target] = error
    if not services:
        raise ConfigurationError(*(one for error in problems.values() for one in error.problems))
    names = [service.name for service in services.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(*(f"two services are called {name!r}" for name in twice))
    return Estate(*services.values(), loading={target: partial(services_of, target) for target in problems})


async def _serve(app: Starlette, listener: socket.socket) -> None:
    from posthouse.console.serving import serve

    stop = asyncio.Event()
    with stopping(stop, within=ENDS_WITHIN):
        say(f"the console is at http://{address_of(listener)}/", "green")
        await serve(app, listener, stop)


async def served(estate: Estate, http: str) -> None:
    """Serve the console until Ctrl-C, as the verb does."""
    from posthouse.console.application import application

    await _serve(application(estate), listening(parsed(http)))

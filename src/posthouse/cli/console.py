"""`posthouse console`: the console over some services, in a browser."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.options import (
    PROXY_HEADER,
    ProxyAudience,
    ProxyHeader,
    ProxyIssuer,
    ProxyKeys,
    RolesPath,
    TlsCert,
    TlsClientCa,
    TlsKey,
    tls_files,
    unfit,
)
from posthouse.cli.output import aim, say
from posthouse.cli.signals import stopping
from posthouse.cli.target import Targets, services_of
from posthouse.errors import ConfigurationError
from posthouse.local.listeners import listener_context, warn_of_plain
from posthouse.service import Service
from posthouse.watch.address import address_of, listening, parsed

if TYPE_CHECKING:
    from posthouse.console.access import Access
    from posthouse.console.estate import Estate

log = logging.getLogger("posthouse.console")

PORT = 8470
DEFAULT = f"127.0.0.1:{PORT}"
SECRET = "POSTHOUSE_OIDC_SECRET"
"""The variable that holds the client's secret: options of a process can be read by others."""
ENDS_WITHIN = 10.0
"""Seconds from SIGTERM to the end."""


def console(
    targets: Targets,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve it; port 0 takes any that is free.")
    ] = DEFAULT,
    url: Annotated[
        str, typer.Option(metavar="URL", help="The address that people type, as in https://console.example.")
    ] = "",
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name under which people reach it; may be repeated."),
    ] = None,
    oidc_issuer: Annotated[
        str, typer.Option(metavar="URL", help="People sign in at this provider of OpenID Connect.")
    ] = "",
    oidc_client_id: Annotated[
        str, typer.Option(metavar="ID", help=f"What the provider calls this console; a secret is in {SECRET}.")
    ] = "",
    oidc_scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="Also asked of the provider, as in groups; may be repeated."),
    ] = None,
    proxy_keys: ProxyKeys = "",
    proxy_issuer: ProxyIssuer = "",
    proxy_audience: ProxyAudience = "",
    proxy_header: ProxyHeader = PROXY_HEADER,
    roles: RolesPath = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    log_level: Annotated[Level, typer.Option(help="The least severe line that is logged.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
) -> None:
    """Open the console: what flows, what is stuck, what it means, what to press.

    It looks at the stores of the services, makes nothing, and runs nothing but the jobs that are pressed in it. A target that
    cannot be imported, and a store that is away or older, is told of on the page while the rest works. It ends with code 0 at
    SIGTERM or Ctrl-C.

    Without --oidc-issuer or --proxy-keys it prints a link that signs one browser in, once, and serves the loopback only.
    """
    try:
        from posthouse.console.access import Access, Oidc, Proxy
    except ImportError as error:
        raise ConfigurationError(
            f"the console needs {error.name}, which is not installed: pip install 'posthouse[console]'"
        ) from error
    if problems := unfit(
        issuer=oidc_issuer,
        proxy=proxy_keys,
        roles=roles,
        of_issuer={"--oidc-client-id": oidc_client_id, "--oidc-scope": oidc_scope},
        of_proxy={"--proxy-issuer": proxy_issuer, "--proxy-audience": proxy_audience},
    ):
        raise ConfigurationError(*problems)
    scopes = ("openid", "email", "profile", *(oidc_scope or ()))
    secret = os.environ.get(SECRET, "")
    access = Access(
        oidc=Oidc(issuer=oidc_issuer, client_id=oidc_client_id, client_secret=secret, scopes=scopes)
        if oidc_issuer
        else None,
        proxy=Proxy(keys=proxy_keys, issuer=proxy_issuer, audience=proxy_audience, header=proxy_header)
        if proxy_keys
        else None,
        roles=roles,
        url=url,
        host_names=tuple(host_name or ()),
    )
    address = parsed(http, usual=PORT)
    access.bound_to(address.host)
    tls = listener_context(tls_files(tls_cert, tls_key, tls_client_ca))
    aim(*targets)
    estate = estate_of(targets)
    log_to_stderr(log_level, as_json=log_json)
    asyncio.run(_serve(estate, access, listening(address), tls))


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


async def _serve(estate: Estate, access: Access, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
    from posthouse.console.application import guarded
    from posthouse.console.serving import serve

    address = address_of(listener)
    here = f"{'http' if tls is None else 'https'}://{address}"
    place = f"{access.url.rstrip('/') or here}/"
    if tls is None and address.public:
        warn_of_plain(log, here)

    def announce(token: str) -> None:
        say(f"the console is at {place}#token={token}", "green")
        say("the link signs one browser in, once, within ten minutes")

    stop = asyncio.Event()
    with stopping(stop, within=ENDS_WITHIN):
        app = guarded(estate, access, announce)
        if access.way != "token":
            say(f"the console is at {place}", "green")
        await serve(app, listener, stop, ending=app.aclose, tls=tls)


async def served(estate: Estate, http: str) -> None:
    """Serve the console until Ctrl-C, as the verb does without further options."""
    from posthouse.console.access import Access

    access, address = Access(), parsed(http, usual=PORT)
    access.bound_to(address.host)
    await _serve(estate, access, listening(address))

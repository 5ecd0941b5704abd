"""Serving: the pages of some Apps, from a thread beside their event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from posthouse.app import App
from posthouse.health import Health
from posthouse.local.listeners import warn_of_plain
from posthouse.watch.asking import Asked
from posthouse.watch.beat import Beat
from posthouse.watch.http import Server
from posthouse.watch.pages import Pages
from posthouse.watch.process import samples as process_samples
from posthouse.watch.prometheus import checked_prefix
from posthouse.watch.scale import Scaling
from posthouse.watch.standing import Standing

log = logging.getLogger("posthouse.run")

PREFIX = "POSTHOUSE_METRICS_PREFIX"
OPEN = "whoever reaches %s can read it: figures name services, consumers and topics, probes name servers; none a tenant or an event"


@contextlib.asynccontextmanager
async def serving(
    listener: socket.socket,
    apps: Sequence[App],
    *,
    runs: bool,
    waits: Callable[[], str] = str,
    prefix: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Serve while the block lasts, from a thread beside the loop of the Apps. `runs`: they run here, so that there are figures of
    this process, and a health. `waits` says why no work may come yet, and nothing when it may."""
    opened = {app.opened.name: app.opened for app in apps}  # held fast: one that was closed would open again

    def health() -> Mapping[str, Health]:
        return {name: one.health() for name, one in opened.items()} if runs else {}

    beat, standing = Beat(health), Asked(Standing(apps).samples, asyncio.get_running_loop())
    pages = Pages(
        seen=beat.seen,
        waits=waits,
        process=lambda: process_samples(apps) if runs else (),
        standing=standing,
        scaling=Scaling(apps),
        prefix=prefix_of(prefix),
    )
    server = Server(listener, pages.answer, tls=tls)
    place = f"{'http' if tls is None else 'https'}://{server.address}"
    log.info("figures at %s/metrics, beside /healthz, /readyz and /scale", place)
    if server.address.public:
        if tls is None:
            warn_of_plain(log, place)
        if tls is None or tls.verify_mode is not ssl.CERT_REQUIRED:
            log.warning(OPEN, server.address)
    try:
        with beat.beating(), server.serving():
            yield
    finally:
        await standing.aclose()


def prefix_of(given: str | None) -> str:
    """What a platform's names begin with: as it was given, or as the environment says. ConfigurationError for what cannot be."""
    return checked_prefix(os.environ.get(PREFIX, "") if given is None else given)

"""One process of the platform: a few services, until it is told to stop, or killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection

from melmastoon.demo.ground import Ground
from melmastoon.platform import SERVICES
from posthouse import Service, app_of
from posthouse.errors import BrokerUnavailable, StoreUnavailable
from posthouse.runtime import Runtime

log = logging.getLogger("melmastoon.demo")


def work(ground: Ground, names: Sequence[str], lifeline: Connection) -> None:
    """Run the named services. The other end of `lifeline` is held by the driver: when that is gone, so are we."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which stops us
    logging.basicConfig(filename=f"{ground.folder}/workers.log", level=logging.INFO, format=FORMAT)
    try:
        with ground.outside():
            asyncio.run(_work(ground, names, lifeline))
    except Exception:
        log.exception("the process of %s falls", ", ".join(names))
        raise


RARELY = 7 * 86_400.0
"""Seconds between two rounds of housekeeping: days pass in seconds here."""
PAUSE = 0.5
"""Seconds between two tries while a server is away or too busy to answer."""
FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


async def _work(ground: Ground, names: Sequence[str], lifeline: Connection) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(lifeline.fileno(), lambda: _told(lifeline, stop))
    services = [service for service in SERVICES if service.name in names]
    ground.settle_in(services, ground.clock())
    try:
        runtimes = [replace(await prepared(service), housekeeping_every=RARELY) for service in services]
        async with asyncio.TaskGroup() as group:
            for runtime in runtimes:
                group.create_task(runtime.run(stop))
    finally:
        for service in services:
            await service.aclose()


async def prepared(service: Service) -> Runtime:
    """Wait for servers that do not answer: whoever starts a process again in the middle of a storm must not lose it at once."""
    while True:
        try:
            return await app_of(service).opened.prepare()
        except (BrokerUnavailable, StoreUnavailable) as error:
            log.warning("%s waits for its servers: %s", service.name, error)
            await asyncio.sleep(PAUSE)


def _told(lifeline: Connection, stop: asyncio.Event) -> None:
    """A word from the driver is a request to stop; its silence for ever is its end."""
    try:
        lifeline.recv_bytes()
    except EOFError:
        os._exit(1)
    stop.set()

"""Starting: broker and database may come up after us. Whoever waits for them says so; what is wrong fails at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from posthouse.app import App
from posthouse.errors import BrokerUnavailable, CommitUnknown, ConfigurationError, StoreUnavailable
from posthouse.pulse import Pulse
from posthouse.redaction import redacted
from posthouse.runtime import Runtime
from posthouse.sending.breaker import Breaker
from posthouse.store import RelaySource

log = logging.getLogger("posthouse.run")

FIRST, LAST = 0.5, 10.0
"""Seconds between the first two tries, and at the most."""
LOOK = 1.0
"""Seconds between two looks at whether somebody still answers."""

AWAY = (StoreUnavailable, CommitUnknown, BrokerUnavailable)
"""What time may mend. A store that is outdated, a password that is refused and a wrong option are not among them."""


async def prepared(apps: Sequence[App], relay: RelaySource | None, stop: asyncio.Event, *, wait: bool) -> list[Runtime]:
    """Every App, ready to run; none when `stop` came first. Raises every problem of every service at once; without
    `wait`, also what is only away."""
    breaker = Breaker(FIRST, LAST)
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            pulse = Pulse()
            trying = asyncio.create_task(_prepare(apps, relay, pulse))
            try:
                while not trying.done() and not stop.is_set():
                    await asyncio.wait([trying, stopped], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                    if not trying.done() and pulse.look(LOOK):
                        raise StoreUnavailable(f"no answer for {pulse.patience:g} s")
                if trying.done():
                    return trying.result()
            except AWAY as error:
                if not wait:
                    raise
                delay = breaker.failed()
                log.warning("waiting for %s, next try in %.1f s: %s", _awaited(apps, error), delay, error)
                await asyncio.wait([stopped], timeout=delay)
            finally:
                trying.cancel()
        return []
    finally:
        stopped.cancel()


async def _prepare(apps: Sequence[App], relay: RelaySource | None, pulse: Pulse) -> list[Runtime]:
    """Every problem of every service at once; those that are away come last."""
    runtimes: list[Runtime] = []
    problems: list[str] = []
    away: Exception | None = None
    for app in apps:
        try:
            with pulse.doing(f"preparing {app.opened.name}"):
                runtimes.append(await app.opened.prepare(relay))
        except ConfigurationError as error:
            problems += error.problems
        except AWAY as error:
            away = error
    if problems:
        raise ConfigurationError(*problems)
    if away is not None:
        raise away
    return runtimes


def _awaited(apps: Sequence[App], error: Exception) -> str:
    broker = isinstance(error, BrokerUnavailable)
    places = {redacted(app.opened.ports.broker_url if broker else app.opened.ports.store_url) for app in apps}
    return f"the {'broker' if broker else 'database'} ({', '.join(sorted(places))})"

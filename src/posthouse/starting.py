"""Starting: broker and database may come up after us. Whoever waits for them says so; what is wrong fails at once."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Collection, Sequence

from posthouse.errors import ConfigurationError, PosthouseError, StoreUnavailable
from posthouse.opened import Opened
from posthouse.outage import AWAY
from posthouse.pulse import Pulse
from posthouse.redaction import redacted, words_of
from posthouse.runtime import Part, Runtime
from posthouse.sending.breaker import Breaker
from posthouse.store import RelaySource

log = logging.getLogger("posthouse.run")

FIRST, LAST = 0.5, 10.0
"""Seconds between the first two tries, and at the most."""
LOOK = 1.0
"""Seconds between two looks at whether somebody still answers."""
STORE_WITHIN = 30.0
"""Seconds that whoever runs in the background of a block waits for the store, before the block."""
ENTER_WITHIN = 10.0
"""Seconds that it waits for the broker there."""
START = "start"
"""Who waits, in the log."""


async def prepared(
    them: Sequence[Opened],
    relay: RelaySource | None,
    stop: asyncio.Event,
    *,
    wait: bool,
    waits: Callable[[], object] = lambda: None,
) -> list[Runtime]:
    """All of them, ready to run; none when `stop` came first. Raises every problem of every service at once; without
    `wait`, also what is only away. `waits` is called whenever something is."""
    breaker = Breaker(FIRST, LAST)
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            pulse = Pulse()
            trying = asyncio.create_task(_prepare(them, relay, pulse))
            try:
                while not trying.done() and not stop.is_set():
                    await asyncio.wait([trying, stopped], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                    if not trying.done() and pulse.look(LOOK):
                        raise StoreUnavailable(f"no answer for {pulse.patience:g} s")
                if trying.done():
                    runtimes = trying.result()
                    for one in them:
                        one.outages.answered(START)
                    return runtimes
            except AWAY as error:
                if not wait:
                    raise
                for one in them:
                    one.outages.failed(START, error)
                waits()
                await asyncio.wait([stopped], timeout=breaker.failed())
            finally:
                trying.cancel()
        return []
    finally:
        stopped.cancel()
        for one in them:
            one.outages.left(START)


async def open_in_time(opened: Opened) -> None:
    """Open it; a store that is away is waited for. Raises StoreUnavailable after a while, and at once what is wrong."""
    breaker = Breaker(FIRST, LAST / 2)
    try:
        async with asyncio.timeout(STORE_WITHIN):
            while True:
                try:
                    await opened.open()
                    opened.outages.answered(START)
                    return
                except AWAY as error:
                    opened.outages.failed(START, error)
                await asyncio.sleep(breaker.failed())
    except TimeoutError:
        raise StoreUnavailable(
            f"{opened.outages.store.what} did not answer within {STORE_WITHIN:g} s: {opened.name} cannot start without it"
        ) from None
    finally:
        opened.outages.left(START)


async def serve(
    opened: Opened, relay: RelaySource | None, only: Collection[Part], stop: asyncio.Event, entered: asyncio.Event
) -> None:
    """Run until `stop`, from when the broker is there. `entered` is set then, or as soon as it is known to be away. What is wrong
    is raised before; after, it is told and tried again."""
    while not stop.is_set():
        try:
            runtimes = await prepared([opened], relay, stop, wait=True, waits=entered.set)
            break
        except Exception as error:
            if not entered.is_set():
                raise
            _tell(opened, error, f", next try in {LAST:g} s")
            await opened.clock.wait(stop, LAST)
    else:
        return
    opened.problem = ""
    for runtime in runtimes:
        running = asyncio.create_task(runtime.run(stop, only))
        try:
            if "consumers" in only:
                await runtime.begun(running)
            entered.set()
            await running
        except Exception as error:  # it is raised where the block ends, which may be far away
            _tell(opened, error)
            raise


def _tell(opened: Opened, error: Exception, then: str = "") -> None:
    """Say in the log and in the health that it does not run; of an error that nobody foresaw, also where it came from."""
    foreseen = isinstance(error, PosthouseError)
    opened.problem = words_of(error) if foreseen else f"{type(error).__name__}: {words_of(error)}"
    where = "" if foreseen else "\n" + redacted("".join(traceback.format_exception(error)))
    log.error("%s cannot run%s: %s%s", opened.name, then, opened.problem, where)


async def _prepare(them: Sequence[Opened], relay: RelaySource | None, pulse: Pulse) -> list[Runtime]:
    """Every problem of every service at once; those that are away come last."""
    runtimes: list[Runtime] = []
    problems: list[str] = []
    away: Exception | None = None
    for one in them:
        try:
            with pulse.doing(f"preparing {one.name}"):
                runtimes.append(await one.prepare(relay))
        except ConfigurationError as error:
            problems += error.problems
        except AWAY as error:
            away = error
    if problems:
        raise ConfigurationError(*problems)
    if away is not None:
        raise away
    return runtimes

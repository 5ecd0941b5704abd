"""`posthouse run`: one or several services in one process, until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import os
import socket
import ssl
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Literal, NamedTuple

import typer

from posthouse.app import App, apps_of, refuse_without_archive
from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.options import Prefix, TlsCert, TlsClientCa, TlsKey, tls_files
from posthouse.cli.signals import stopping
from posthouse.cli.target import Targets, load_all
from posthouse.cli.watchdog import Watchdog, end_process
from posthouse.errors import ConfigurationError
from posthouse.local.listeners import OPTIONS, listener_context
from posthouse.redaction import redacted
from posthouse.runtime import PARTS, Part
from posthouse.starting import prepared
from posthouse.store import RelaySource
from posthouse.watch.address import DEFAULT, listening, parsed
from posthouse.watch.serving import prefix_of, serving

log = logging.getLogger("posthouse.run")

GRACE = 30.0
"""Seconds beyond the longest handler deadline before a silent event loop counts as stalled."""

LAST_WORDS = 1.0
"""Seconds for handlers that were given up to end, when everything else has."""

CLOSING = 10.0
"""Seconds for the connections of all services to close."""

STOP_WITHIN = 25.0
"""Seconds from SIGTERM to the end: supervisors often kill after 30."""

STARTING = "it has not begun to run: it opens its stores and brokers"
STOPPING = "it was asked to stop, and finishes what is in flight"


class PartName(enum.StrEnum):
    """The parts as typer wants them: it takes no list of literals."""

    RELAY = "relay"
    CONSUMERS = "consumers"
    TIMERS = "timers"
    ARCHIVE = "archive"


def run(
    targets: Targets,
    only: Annotated[list[PartName] | None, typer.Option(help="Run this part alone; may be given again.")] = None,
    relay: Annotated[
        RelaySource | None,
        typer.Option(
            help="Where the relay's rows come from: polls of the outbox, or the log of the database (PostgreSQL, "
            "wal_level=logical). Default: what the service says, else poll.",
        ),
    ] = None,
    stall_exit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End with code 70 when the event loop has been blocked for so long, for a supervisor to start it again. "
            "Default: the longest handler deadline and 30 seconds.",
        ),
    ] = None,
    stop_within: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="End so soon after SIGTERM at the latest. What is in flight by then is given up and comes again.",
        ),
    ] = STOP_WITHIN,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="While broker or database are away at the start: try again until they come, or end at once.",
        ),
    ] = True,
    saga_misfits: Annotated[
        Literal["refuse", "start"] | None,
        typer.Option(
            help="When stored sagas could not go on with the class as it is now: refuse to start, or start and say so. "
            "Default: what the service says, else refuse.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics, /healthz, /readyz and /scale there, as at 127.0.0.1:9464; port 0 takes any that is free.",
        ),
    ] = None,
    prefix: Prefix = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    log_level: Annotated[Level, typer.Option(help="The least severe line that is logged.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
) -> None:
    """Run relay, consumers, timers and the archive of one or several services.

    SIGTERM or Ctrl-C finishes what is in flight and ends with code 0, within --stop-within seconds whatever hangs; a second
    one ends at once with code 130. Broker and database may come up later: it waits for them and says so.
    Start as many copies as you like: they share the work.
    """
    for option, seconds in (("--stall-exit", stall_exit), ("--stop-within", stop_within)):
        if seconds is not None and seconds <= 0:
            raise ConfigurationError(f"{option} takes seconds above 0, not {seconds:g}")
    if http is None and prefix is not None:
        raise ConfigurationError(f"--prefix is for the names of figures, and none are served: add --http {DEFAULT}")
    files = tls_files(tls_cert, tls_key, tls_client_ca)
    if http is None and any(files):
        given = next(name for name, path in zip(OPTIONS, files, strict=True) if path is not None)
        raise ConfigurationError(f"{given} is for what --http serves, and nothing is served: add --http {DEFAULT}")
    address, prefix, tls = None if http is None else parsed(http), prefix_of(prefix), listener_context(files)
    services = load_all(targets)
    log_to_stderr(log_level, as_json=log_json)
    apps = apps_of(services)
    if saga_misfits is not None:
        for app in apps:
            app.settings = dataclasses.replace(app.settings, saga_misfits=saga_misfits)
    for app in apps:
        refuse_without_archive(app, [part.value for part in only or ()])
    limit = longest_deadline(apps) + GRACE if stall_exit is None else stall_exit
    listener = None if address is None else listening(address)
    plan = Plan([part for part in PARTS if not only or part in only], relay, wait, listener, prefix, tls)
    asyncio.run(_serve(apps, plan, limit, stop_within))


class Plan(NamedTuple):
    """What to run, whether to wait for what is away at the start, and where to serve the figures, if anywhere."""

    only: Collection[Part]
    relay: RelaySource | None
    wait: bool
    listener: socket.socket | None
    prefix: str
    tls: ssl.SSLContext | None


async def _serve(apps: Sequence[App], plan: Plan, limit: float, budget: float) -> None:
    stop = asyncio.Event()
    with stopping(stop, within=budget + 3 * LAST_WORDS), Watchdog(limit, end_process).watching():
        in_time = await _within(budget, asyncio.create_task(_work(apps, plan, stop)), stop)
        await _take_leave(forced=not in_time)


async def _within(budget: float, work: asyncio.Task[None], stop: asyncio.Event) -> bool:
    """Whether it ended by itself, at the latest so many seconds after `stop`. Raises what it raised."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([work], timeout=budget)
    finally:
        stopped.cancel()
    if not work.done():
        log.error("not at an end after %g s: what is in flight is given up and comes again", budget)
        return False
    work.result()
    return True


async def _work(apps: Sequence[App], plan: Plan, stop: asyncio.Event) -> None:
    begun = asyncio.Event()

    def waits() -> str:
        return STOPPING if stop.is_set() else "" if begun.is_set() else STARTING

    try:
        async with AsyncExitStack() as around:
            if plan.listener is not None:
                await around.enter_async_context(
                    serving(plan.listener, apps, runs=True, waits=waits, prefix=plan.prefix, tls=plan.tls)
                )
            await _run(apps, plan, stop, begun)
    finally:
        await _close(apps)


async def _run(apps: Sequence[App], plan: Plan, stop: asyncio.Event, begun: asyncio.Event) -> None:
    places = [
        f"on {redacted(app.opened.ports.store_url)}, through {redacted(app.opened.ports.broker_url)}" for app in apps
    ]
    relay = plan.relay if "relay" in plan.only else "poll"
    runtimes = await prepared([app.opened for app in apps], relay, stop, wait=plan.wait)
    if runtimes:
        begun.set()
        for app, place in zip(apps, places, strict=True):
            parts = [part for part in plan.only if part != "archive" or app.opened.ports.archive_url is not None]
            log.info("%s: %s %s", app.opened.name, ", ".join(parts), place)
    async with asyncio.TaskGroup() as group:
        for runtime in runtimes:
            group.create_task(runtime.run(stop, plan.only))


async def _close(apps: Sequence[App]) -> None:
    """All of them at once; one that does not close, or fails to, keeps nobody."""
    closing = {asyncio.create_task(app.aclose()): app.opened.name for app in apps}
    done, left = await asyncio.wait(closing, timeout=CLOSING)
    for task in left:
        log.error("%s: closing takes longer than %g s and is given up", closing[task], CLOSING)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s was not closed in good order: %s", closing[task], error)


async def _take_leave(*, forced: bool) -> None:
    """What is left now was given up. It is asked once more; who does not listen must not keep us, and no thread either."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    deaf = (await asyncio.wait(left, timeout=LAST_WORDS))[1] if left else set()
    threads = asyncio.ensure_future(loop.shutdown_default_executor())
    busy = (await asyncio.wait([threads], timeout=LAST_WORDS))[1]
    log.log(logging.WARNING if deaf else logging.INFO, "stopped, %d tasks left behind", len(deaf))
    if forced or deaf or busy:
        logging.shutdown()
        os._exit(0)


def longest_deadline(apps: Sequence[App]) -> float:
    """Of all handlers that run with these Apps, those of services that nobody named included."""
    consumers = [
        handlers for app in apps for service in app.services for handlers in service.declared.consumers.values()
    ]
    return max((handler.policy.deadline for handlers in consumers for handler in handlers.values()), default=0.0)

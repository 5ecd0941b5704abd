"""`posthouse run`: one or several services in one process, until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.signals import stopping
from posthouse.cli.target import Targets, load_all
from posthouse.cli.watchdog import Watchdog, end_process
from posthouse.errors import ConfigurationError
from posthouse.redaction import redacted
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.service import Service
from posthouse.store import RelaySource

log = logging.getLogger("posthouse.run")

GRACE = 30.0
"""Seconds beyond the longest handler deadline before a silent event loop counts as stalled."""

LAST_WORDS = 1.0
"""Seconds for handlers that were given up to end, when everything else has."""


class PartName(enum.StrEnum):
    """The parts as typer wants them: it takes no list of literals."""

    RELAY = "relay"
    CONSUMERS = "consumers"
    TIMERS = "timers"


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
    log_level: Annotated[Level, typer.Option(help="The least severe line that is logged.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
) -> None:
    """Run relay, consumers and timers of one or several services.

    SIGTERM or Ctrl-C finishes what is in flight and ends with code 0; a second one ends at once with code 130.
    Start as many copies as you like: they share the work.
    """
    if stall_exit is not None and stall_exit <= 0:
        raise ConfigurationError(f"--stall-exit takes seconds above 0, not {stall_exit:g}")
    services = load_all(targets)
    log_to_stderr(log_level, as_json=log_json)
    limit = _longest_deadline(services) + GRACE if stall_exit is None else stall_exit
    asyncio.run(_serve(services, [part for part in PARTS if not only or part in only], relay, limit))


async def _serve(services: Sequence[Service], only: Collection[Part], relay: RelaySource | None, limit: float) -> None:
    stop = asyncio.Event()
    with stopping(stop), Watchdog(limit, end_process).watching():
        try:
            places = [
                f"on {redacted(service.store_url)}, through {redacted(service.broker_url)}" for service in services
            ]
            runtimes = await _prepare(services, relay if "relay" in only else "poll")
            for service, place in zip(services, places, strict=True):
                _announce(service, only, place)
            async with asyncio.TaskGroup() as group:
                for runtime in runtimes:
                    group.create_task(runtime.run(stop, only))
        finally:
            for service in services:
                await service.aclose()
    await _take_leave()


async def _prepare(services: Sequence[Service], relay: RelaySource | None) -> list[Runtime]:
    """Every problem of every service at once."""
    runtimes: list[Runtime] = []
    problems: list[str] = []
    for service in services:
        try:
            runtimes.append(await service.prepare(relay=relay))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    return runtimes


def _announce(service: Service, only: Collection[Part], place: str) -> None:
    log.info("%s: %s %s", service.name, ", ".join(only), place)


async def _take_leave() -> None:
    """What is left now was given up at its deadline. It is asked once more; who does not listen must not keep us."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    deaf = (await asyncio.wait(left, timeout=LAST_WORDS))[1] if left else set()
    log.log(logging.WARNING if deaf else logging.INFO, "stopped, %d tasks left behind", len(deaf))
    if deaf:
        logging.shutdown()
        os._exit(0)


def _longest_deadline(services: Sequence[Service]) -> float:
    return max(
        (h.policy.deadline for s in services for by_type in s.consumers.values() for h in by_type.values()), default=0.0
    )

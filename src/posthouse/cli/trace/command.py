"""`posthouse trace ID TARGET…`: find it, show it, and say what did not come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from posthouse.cli.flow import named
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import complain, print_json, stderr
from posthouse.cli.saga.choosing import chosen
from posthouse.cli.target import Targets, load_all
from posthouse.cli.trace.expecting import Expectation, expectation
from posthouse.cli.trace.showing import facts, show, show_expectation
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.events import timestamp
from posthouse.governance.listing import catalogue_of
from posthouse.service import Service
from posthouse.tracing import MARGIN, Trace
from posthouse.tracing import trace as find


def trace(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="An event's id, or a correlation id; with --saga, the id of a saga.")
    ],
    targets: Targets,
    saga: Annotated[
        str | None, typer.Option(metavar="NAME", help="Everything that belongs to this saga: its name, as ID its id.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Of the saga; needed when several have the id.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of the saga. Default: the newest.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read logs from here on: 2026-04-22T10:00:00Z. Default: the time in the id."),
    ] = None,
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="NAME", help="Say which facts of this declared flow did not come.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the causal tree of everything that one request caused, and what consumers did with it.

    Name every service that may have taken part. Ends with code 1 when nothing was found, and with --flow when a fact that
    must come did not.
    """
    services = load_all(targets)
    entry = None if flow is None else named(catalogue_of(services), flow)
    from_then = None if since is None else moment_of(since)
    if saga is None and (tenant is not None or attempt is not None):
        raise ConfigurationError("--tenant and --attempt are those of a saga: name it with --saga")
    which = None if saga is None else Which(owner(services, saga), saga, identifier, tenant, attempt)
    found = asyncio.run(_find(services, identifier, from_then, which))
    if not found.branches:
        _nothing(found, services)
        raise typer.Exit(CHECK_FAILED)
    expected = None if entry is None else expectation(entry, catalogue_of(services), found)
    if as_json:
        print_json({**facts(found), **({} if expected is None else {"flow": expected})})
    else:
        _show(found, expected)
    if expected is not None and not expected.complete:
        raise typer.Exit(CHECK_FAILED)


def _show(found: Trace, expected: Expectation | None) -> None:
    show(found)
    if expected is not None:
        show_expectation(expected)


def _nothing(found: Trace, services: Sequence[Service]) -> None:
    complain(f"posthouse: nothing of {found.correlation!r} was found in {', '.join(s.name for s in services)}")
    for note in found.notes:
        complain(note)
    if found.since is not None:
        complain(f"looked at what was stored from {timestamp(found.since)} on: an earlier --since looks further back")


class Which(NamedTuple):
    """The saga that was meant."""

    service: Service
    saga: str
    id: str
    tenant: str | None
    attempt: int | None


def owner(services: Sequence[Service], saga: str) -> Service:
    """The service that declares a saga. Raises ConfigurationError, which says what there is."""
    for service in services:
        if saga in service.declared.saga_types:
            return service
    known = {name for service in services for name in service.declared.saga_types}
    raise ConfigurationError(f"no saga is called {saga!r}.{did_you_mean(saga, known) or ' None is declared.'}")


async def _find(services: Sequence[Service], identifier: str, since: float | None, which: Which | None) -> Trace:
    console = stderr()
    async with opened(services):
        if which is not None:
            row = await chosen(*which)
            identifier = row.correlation or identifier
            since = row.started_at - MARGIN if since is None else since
        if not console.is_terminal:
            return await find(services, identifier, since)
        with console.status("reading …"):
            return await find(services, identifier, since)

"""`posthouse topology plan|apply`: what the brokers should hold for some services, beside what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from posthouse.app import app_of
from posthouse.cli.options import AsJson, Yes
from posthouse.cli.output import Cell, confirm, counted, print_json, print_table, say
from posthouse.cli.target import Targets, load_all
from posthouse.redaction import redacted
from posthouse.service import Service
from posthouse.topology import Scope, Step, Verb, carry_out, is_allowed, merged, plan

DIFFERENT = 2
SIGNS: dict[Verb, Text] = {
    "create": Text("+", "green"),
    "change": Text("~", "yellow"),
    "delete": Text("-", "bold red"),
}

app = typer.Typer(no_args_is_help=True, help="Compare brokers with what services declare, and make them fit.")

AllowDelete = Annotated[
    bool, typer.Option("--allow-delete", help="Also make the steps that lose frames, or a group's place.")
]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One broker with the services on it, and what differs there. `made` holds the steps that were carried out."""

    broker: str
    services: Sequence[str]
    steps: Sequence[Step]
    made: Sequence[Step] = ()


@app.command("plan")
def plan_command(targets: Targets, as_json: AsJson = False) -> None:
    """Show what `apply` would do. Changes nothing; ends with code 2 when something differs.

    Name the services of a broker together: a topic that another one reads is then known to be in use.
    """
    sites = asyncio.run(_planned(load_all(targets)))
    if as_json:
        print_json({"differences": sum(len(site.steps) for site in sites), "brokers": sites})
    else:
        for site in sites:
            _show(site)
    if any(site.steps for site in sites):
        raise typer.Exit(DIFFERENT)


@app.command("apply")
def apply_command(
    targets: Targets, allow_delete: AllowDelete = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Show the plan, ask, and carry it out: creations and changes, and with --allow-delete also what loses frames.

    Safe to run again. What is left is said, and is no failure.
    """
    made = asyncio.run(_applied(load_all(targets), allow_delete, ask=not yes, quiet=as_json))
    count = sum(len(site.made) for site in made)
    if as_json:
        print_json({"made": count, "brokers": made})
    elif count:
        say(f"{counted(count, 'step')} made", "green")


async def _planned(services: Sequence[Service]) -> list[Site]:
    async with _closing(services):
        return [await _look(shared) for shared in _by_broker(services)]


async def _applied(services: Sequence[Service], allow_delete: bool, *, ask: bool, quiet: bool) -> list[Site]:
    """The steps that were shown are made, and no others."""
    async with _closing(services):
        brokers = _by_broker(services)
        sites = [await _look(shared) for shared in brokers]
        if not quiet:
            for site in sites:
                _show(site, allow_delete=allow_delete)
        count = sum(is_allowed(step, allow_delete=allow_delete) for site in sites for step in site.steps)
        if count and ask:
            confirm(f"Make {counted(count, 'step')}?")
        return [await _make(shared, site, allow_delete) for shared, site in zip(brokers, sites, strict=True)]


async def _look(shared: Sequence[Service]) -> Site:
    steps = await plan(app_of(shared[0]).broker, merged(shared), Scope.of(shared))
    names = [service.name for service in shared]
    return Site(broker=redacted(app_of(shared[0]).opened.ports.broker_url), services=names, steps=steps)


async def _make(shared: Sequence[Service], site: Site, allow_delete: bool) -> Site:
    made = await carry_out(app_of(shared[0]).broker, merged(shared), site.steps, allow_delete=allow_delete)
    return msgspec.structs.replace(site, made=made)


def _by_broker(services: Sequence[Service]) -> list[list[Service]]:
    """Services with the same URL share a broker; another option in it may mean other settings."""
    shared: dict[object, list[Service]] = {}
    for service in services:
        url = app_of(service).opened.ports.broker_url
        shared.setdefault(url if "://" in url else id(app_of(service).broker), []).append(service)
    return list(shared.values())


@asynccontextmanager
async def _closing(services: Sequence[Service]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for service in services:
            await service.aclose()


def _show(site: Site, *, allow_delete: bool = False) -> None:
    say(f"{', '.join(site.services)}: {site.broker}", "bold")
    if not site.steps:
        say("as declared: nothing to do\n", "green")
        return
    print_table(("", "WHAT", "OF", "WHY"), [_row(step, allow_delete) for step in site.steps])
    verbs = [step.verb for step in site.steps]
    say(f"\n{verbs.count('create')} to create, {verbs.count('change')} to change, {verbs.count('delete')} to delete\n")


def _row(step: Step, allow_delete: bool) -> tuple[Cell, ...]:
    resource = step.resource
    of = resource.topic if resource.group is None else f"{resource.group} reads {resource.topic}"
    return SIGNS[step.verb], resource.called, of, _why(step, allow_delete)


def _why(step: Step, allow_delete: bool) -> str:
    """What changes, what goes with it, and what stands in the way."""
    said = [f"{drift.setting}: {drift.found} → {drift.wanted}" for drift in step.drift]
    said += [drift.fix for drift in step.drift if drift.fix and drift.fix != step.blocked]
    if step.verb == "create":
        said.append("missing")
    if step.verb == "delete":
        said.append("not declared any more")
    if step.loses:
        said.append(f"loses {step.loses}")
    if step.blocked:
        said.append(f"cannot be done: {step.blocked}")
    elif step.loses and not allow_delete:
        said.append("needs --allow-delete")
    return "; ".join(said)

"""`posthouse held retry|skip|quarantine|release`: decide what happens to held events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
import typer
from rich.progress import track

from posthouse.cli.group import BAD_INPUT
from posthouse.cli.held.choosing import Consumer, HeldIds, Key, State, Tenant, Topic, chosen
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import complain, confirm, counted, print_json, say, stderr
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, DeskError
from posthouse.service import Service
from posthouse.store import HeldEvent, HeldFilter, HeldState

Verb = Callable[[int], Awaitable[HeldEvent]]
Choose = Callable[[], Awaitable[Sequence[int]]]

RETRIED_BY_ALL: frozenset[HeldState] = frozenset(("dead", "retrying"))
"""What `retry --all` means unless --state says otherwise: others wait for these, or were set aside on purpose."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each event: the numbers that were changed, and why others were not."""

    done: Sequence[int]
    refused: dict[int, str]


def retry(
    target: Target,
    held_ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="Numbers from `held list`.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every dead or retrying event that fits the filters, instead of numbers.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also when its key went on without it: out of order.")] = False,
    consumer: Consumer = None,
    state: State = None,
    tenant: Tenant = None,
    topic: Topic = None,
    key: Key = None,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run held events again, with all their attempts. The events behind them follow by themselves."""
    service = load(target)
    wanted = chosen(service, consumer=consumer, state=state, tenant=tenant, topic=topic, key=key)
    if everything == bool(held_ids):
        raise ConfigurationError("say which: the numbers of held events, or --all with filters")
    if held_ids and wanted != HeldFilter():
        raise ConfigurationError("filters belong to --all: leave them out, or leave out the numbers")

    async def choose() -> Sequence[int]:
        return held_ids or await _retriable(service, wanted, ask=not yes)

    async def verb(held_id: int) -> HeldEvent:
        return await service.held.retry(held_id, force=force, by=by, why=why)

    _conclude(service, choose, verb, "runs again", as_json)


def skip(target: Target, held_ids: HeldIds, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Give events up: their keys go on without them."""
    service = load(target)

    async def verb(held_id: int) -> HeldEvent:
        return await service.held.skip(held_id, by=by, why=why)

    _conclude(service, _these(held_ids), verb, "is skipped", as_json)


def quarantine(target: Target, held_ids: HeldIds, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Set events aside for inspection: their keys go on, and they never run by themselves."""
    service = load(target)

    async def verb(held_id: int) -> HeldEvent:
        return await service.held.quarantine(held_id, by=by, why=why)

    _conclude(service, _these(held_ids), verb, "is quarantined", as_json)


def release(
    target: Target,
    held_ids: HeldIds,
    force: Annotated[bool, typer.Option("--force", help="Give up any number of missing ones.")] = False,
    by: By = "",
    why: Why = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Nothing is asked here; for scripts that always say it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let the keys of these events go on: a dead first event runs again, missing numbers are given up."""
    service = load(target)

    async def verb(held_id: int) -> HeldEvent:
        return await service.held.release(held_id, force=force, by=by, why=why)

    _conclude(service, _these(held_ids), verb, "has its key released", as_json)


def _these(ids: Sequence[int]) -> Choose:
    async def choose() -> Sequence[int]:
        return ids

    return choose


def _conclude(service: Service, choose: Choose, verb: Verb, done: str, as_json: bool) -> None:
    """Do it, say what became of it, and end with code 2 when something was refused."""
    outcome = asyncio.run(_each(service, choose, verb))
    if as_json:
        print_json(outcome)
    elif len(outcome.done) == 1:
        say(f"{outcome.done[0]} {done}")
    else:
        say(f"{counted(len(outcome.done), 'held event')}: each {done}" if outcome.done else "nothing was changed")
    for reason in outcome.refused.values():
        complain(f"posthouse: {reason}")
    if outcome.refused:
        raise typer.Exit(BAD_INPUT)


async def _each(service: Service, choose: Choose, verb: Verb) -> Outcome:
    done: list[int] = []
    refused: dict[int, str] = {}
    async with opened([service]):
        ids = await choose()
        for held_id in track(ids, "held events", console=stderr(), transient=True, disable=len(ids) < 2):
            try:
                await verb(held_id)
                done.append(held_id)
            except DeskError as error:
                refused[held_id] = str(error)
    return Outcome(done=done, refused=refused)


async def _retriable(service: Service, wanted: HeldFilter, *, ask: bool) -> list[int]:
    states = RETRIED_BY_ALL if wanted.state is None else {wanted.state}
    ids = [event.id async for event in service.held.find(wanted) if event.state in states]
    if ids and ask:
        confirm(f"Run {counted(len(ids), 'held event')} of {service.name} again?")
    return ids

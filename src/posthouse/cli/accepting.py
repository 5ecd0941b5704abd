"""`posthouse outbox accept-loss`: let the sum be right again where events are lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from posthouse.cli.losses import advice, one_target
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, counted, print_json, say
from posthouse.cli.status import looked
from posthouse.cli.target import Targets, load_all
from posthouse.errors import ConfigurationError, DeskError, did_you_mean
from posthouse.missing import accept_loss as accept
from posthouse.missing import at_gaps, nothing_to_accept
from posthouse.service import Service
from posthouse.store.actions import Action
from posthouse.watch.status import Line, Status

MOST = 10
"""So many keys at gaps are named."""


def accept_loss(
    targets: Targets,
    consumer: Annotated[str, typer.Option(help="Which consumer lacks them: as `posthouse status` names it.")],
    topic: Annotated[str, typer.Option(help="In which topic.")],
    why: Why = "",
    by: By = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept that events which a consumer lacks are lost, so that the next loss is seen.

    What is missing in that line now counts as lost, with your name and reason, and `posthouse status` goes on showing it. Nothing
    else changes: should they come after all, they are applied, and saying this once more puts the figure right. While
    a key waits for one of them, give that up first: `posthouse held release`.
    """
    if not why.strip():
        raise ConfigurationError("--why: say why they are lost; whoever reads the books later will ask")
    services = load_all(targets)
    look = asyncio.run(looked(services))
    line = _line(look.figures, look.figures.settled(look.before), consumer, topic)
    if reason := nothing_to_accept(line):
        raise DeskError(reason + asyncio.run(_releasing(services, line, targets)))
    if not yes and not as_json:
        for remedy in look.remedies:
            if (remedy.consumer, remedy.topic) == (consumer, topic) and remedy.since is not None:
                say(advice(remedy, targets), "yellow")
        confirm(_question(line))

    async def write() -> Action:
        async with opened(services):
            return await accept(services, line, by=by, why=why)

    action = asyncio.run(write())
    if as_json:
        print_json({"consumer": consumer, "topic": topic, "accepted": action.count, "lost": line.lost + action.count})
    else:
        say(f"{consumer} in {topic}: {counted(line.lost + action.count, 'event')} accepted as lost", "green")


def _line(figures: Status, settled: Sequence[Line], consumer: str, topic: str) -> Line:
    """The line that is meant; one whose figures move is not to be judged."""
    found = next((line for line in figures.lines if (line.consumer, line.topic) == (consumer, topic)), None)
    if found is None:
        known = [f"{line.consumer} in {line.topic}" for line in figures.lines]
        hint = did_you_mean(f"{consumer} in {topic}", known)
        raise ConfigurationError(f"`posthouse status` has no line {consumer} in {topic}.{hint}")
    if found not in settled:
        raise DeskError(f"events of {consumer} in {topic} are on their way: look again when nothing moves")
    return found


async def _releasing(services: Sequence[Service], line: Line, targets: Sequence[str]) -> str:
    """The command that gives up what its keys wait for, if they do."""
    if line.difference <= 0 or not line.held.get("gap"):
        return ""
    async with opened(services):
        ids = await at_gaps(services, line, MOST + 1)
    more = " …" if len(ids) > MOST else ""
    return f": `posthouse held release {one_target(targets)} {' '.join(map(str, ids[:MOST]))}{more}`"


def _question(line: Line) -> str:
    if line.difference < 0:
        return f"Count {counted(-line.difference, 'event')} of {line.consumer} in {line.topic} as lost no more?"
    return f"Accept that {counted(line.difference, 'event')} of {line.consumer} in {line.topic} are lost?"

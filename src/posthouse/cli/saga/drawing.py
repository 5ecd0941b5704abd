"""`posthouse saga draw`: state diagrams from the code."""

from __future__ import annotations

from typing import Annotated

import typer

from posthouse.cli.output import say
from posthouse.cli.target import Targets, load_all
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.exports.states import states
from posthouse.governance.listing import catalogue_of


def draw(
    targets: Targets,
    saga: Annotated[str | None, typer.Option(help="Only this saga.")] = None,
) -> None:
    """Print sagas as Mermaid state diagrams, for a page of Markdown. What methods say is read from their source."""
    every = catalogue_of(load_all(targets)).sagas
    wanted = [entry for entry in every if saga in (None, entry.name)]
    if not wanted and saga is not None:
        raise ConfigurationError(f"no saga is called {saga!r}.{did_you_mean(saga, {entry.name for entry in every})}")
    if not wanted:
        say("no saga is declared: declare one with @service.saga(…)")
    for number, entry in enumerate(wanted):
        if number:
            say("")
        say(f"**{entry.name}** of {entry.service}\n")
        say(states(entry).rstrip())

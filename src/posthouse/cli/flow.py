"""`posthouse flow`: choreographies that services declare, followed through the handlers that make them."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, print_json, print_table, say
from posthouse.cli.target import Targets, load_all
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.document import Document, FlowEntry
from posthouse.governance.exports.flows import Expected, expected
from posthouse.governance.exports.mermaid import choreography
from posthouse.governance.listing import catalogue_of

app = typer.Typer(no_args_is_help=True, help="Look at the flows that services declare.")

Name = Annotated[
    str | None, typer.Option("--flow", metavar="NAME", help="Only this one; service/name where two have it.")
]


@app.command("list")
def list_flows(targets: Targets, as_json: AsJson = False) -> None:
    """List declared flows, and whether a way leads to each fact that must come.

    Name every service that takes part: handlers of others cannot be followed. Ends with code 1 when a fact must come and
    no handler of the services named leads to it.
    """
    document = catalogue_of(load_all(targets))
    found = [expected(document, entry) for entry in document.flows]
    if as_json:
        print_json([_facts(flow) for flow in found])
    elif found:
        print_table(("FLOW", "SERVICE", "STARTS WITH", "FACTS", ""), [_row(flow) for flow in found])
        for flow in found:
            _explain(flow)
    else:
        say("no flow is declared: declare one with service.flow(…)")
    if not all(flow.holds for flow in found):
        raise typer.Exit(CHECK_FAILED)


@app.command()
def draw(targets: Targets, name: Name = None) -> None:
    """Print flows as Mermaid diagrams, for a page of Markdown."""
    document = catalogue_of(load_all(targets))
    entries = document.flows if name is None else [named(document, name)]
    if not entries:
        say("no flow is declared: declare one with service.flow(…)")
    for number, entry in enumerate(entries):
        if number:
            say("")
        say(f"**{entry.name}** of {entry.service}\n")
        say(choreography(expected(document, entry)).rstrip())


def named(document: Document, name: str) -> FlowEntry:
    """The flow of that name. Raises ConfigurationError, which says what there is."""
    found = [entry for entry in document.flows if name in (entry.name, _full(entry))]
    if len(found) > 1:
        raise ConfigurationError(f"{len(found)} flows are called {name!r}: say {' or '.join(map(_full, found))}")
    if not found:
        known = did_you_mean(name, {entry.name for entry in document.flows})
        raise ConfigurationError(f"no flow is called {name!r}.{known or ' The services named declare none.'}")
    return found[0]


def _full(entry: FlowEntry) -> str:
    return f"{entry.service}/{entry.name}"


def _facts(flow: Expected) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(flow.entry),
        "holds": flow.holds,
        "handlers": [step.name for step in flow.steps],
        "no_handler_leads_to": flow.unheard,
        "service_not_listed": flow.unlisted,
    }


def _row(flow: Expected) -> tuple[Cell, ...]:
    entry = flow.entry
    facts = f"{len(entry.then)} must come" + (f", {len(entry.may)} may" if entry.may else "")
    return entry.name, entry.service, entry.starts, facts, _verdict(flow)


def _verdict(flow: Expected) -> Text:
    if not flow.holds:
        return Text("broken", "bold red")
    return Text("partly unknown", "yellow") if flow.unlisted or flow.unheard else Text("complete ✓", "green")


def _explain(flow: Expected) -> None:
    entry = flow.entry
    for subject in flow.unheard:
        must = "must come" if subject in entry.then else "may come"
        say(
            f"\n{entry.name}: {subject} {must}, but no handler that {entry.starts} leads to is known to publish it: write the "
            "handler, or name the event in its publishes=[…]",
            "bold red" if subject in entry.then else "yellow",
        )
    if flow.unlisted:
        say(f"\n{entry.name}: the services of {', '.join(flow.unlisted)} are not listed: name them too", "yellow")

"""`posthouse grant`: let somebody replay or edit for a while, because another one says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from posthouse.app import App, app_of
from posthouse.cli.losses import when
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, Why
from posthouse.cli.output import print_json, print_table, say, span
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.operators import plain
from posthouse.service import Service
from posthouse.store import Grant, GrantVerb, Scope
from posthouse.trust.rights import Asked

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    help="Let somebody replay or edit events for a while, because another one says so.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="As `posthouse grant list` shows it.")]
As = Annotated[
    str,
    typer.Option(
        "--as",
        "--by",
        metavar="NAME",
        help="Who you are. Default: POSTHOUSE_OPERATOR, else login@host. It is believed.",
        callback=plain,
    ),
]
COLUMNS = ("ID", "STATE", "VERB", "FOR", "ASKED BY", "APPROVED BY", "USED", "LEFT")


@app.command()
def request(
    target: Target,
    edit: Annotated[bool, typer.Option("--edit", help="To edit held events, and not to replay.")] = False,
    consumer: Annotated[str | None, typer.Option(help="Only of this consumer.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    type: Annotated[str | None, typer.Option(help="Only of this subject.")] = None,
    key: Annotated[str | None, typer.Option(help="Only of this ordering key.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was said at or after it: 2026-04-22T10:00:00Z.", metavar="TIME")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what was said before it.", metavar="TIME")] = None,
    minutes: Annotated[int, typer.Option(help="For how long, from the approval on: 60 at most.")] = 30,
    most: Annotated[int, typer.Option(help="How many events.")] = 1_000,
    rate: Annotated[float, typer.Option(help="How many per second, of all who use it together.")] = 10.0,
    name: As = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Ask for a grant. Nothing may be done with it before somebody else has approved it."""
    service = load(target)
    _refuse_unknown(service, consumer, topic)
    verb: GrantVerb = "edit" if edit else "replay"
    scope = Scope(
        consumer=consumer,
        topic=topic,
        tenant=tenant,
        type=type,
        key=key,
        since=None if since is None else moment_of(since),
        until=None if until is None else moment_of(until),
    )
    asked = Asked(service=service.name, verb=verb, scope=scope, minutes=minutes, most=most, rate=rate)
    grant = _on(service, lambda app: app.grants.request(asked, by=name, why=why))
    _tell(grant, as_json, f"asked for: somebody else approves it with `posthouse grant approve {target} {grant.id}`")


@app.command()
def approve(target: Target, id: Id, name: As = "", why: Why = "", as_json: AsJson = False) -> None:
    """Approve what somebody else asked for: it runs from now on."""
    grant = _on(load(target), lambda app: app.grants.approve(id, by=name, why=why))
    _tell(grant, as_json, f"{grant.asked_by} may {grant.verb} {grant.scope.words} for {span(grant.left or 0)}")


@app.command()
def revoke(target: Target, id: Id, name: As = "", why: Why = "", as_json: AsJson = False) -> None:
    """End a grant: what is under way stops before its next batch."""
    grant = _on(load(target), lambda app: app.grants.revoke(id, by=name, why=why))
    _tell(grant, as_json, f"revoked, after {grant.used:,} of {grant.most:,} events")


@app.command("list")
def list_command(
    target: Target,
    running: Annotated[bool, typer.Option("--running", help="Only those that may be used now.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List grants, newest first."""
    found = _on(load(target), lambda app: app.grants.find(running=running, limit=limit))
    if as_json:
        print_json([_facts(grant) for grant in found])
    elif found:
        print_table(COLUMNS, [_row(grant) for grant in found])
    else:
        say("no grant was asked for" if not running else "no grant runs")


@app.command()
def show(target: Target, id: Id, as_json: AsJson = False) -> None:
    """Show one grant: who asked for what and why, who approved it, and how much of it is spent."""
    grant = _on(load(target), lambda app: app.grants.get(id))
    if as_json:
        print_json(_facts(grant))
        return
    rows = [
        ("state", grant.state),
        ("may", f"{grant.verb} {grant.scope.words}"),
        ("of", grant.service),
        ("why", grant.why),
        ("asked by", f"{grant.asked_by} ({grant.asked_as}), {when(grant.asked_at)}"),
        ("approved by", _approved(grant)),
        ("revoked by", grant.revoked_by or ""),
        ("used", f"{grant.used:,} of {grant.most:,}, at most {grant.rate:g} per second"),
        ("left", _left(grant)),
    ]
    print_table(("", ""), [row for row in rows if row[1]])


def _on(service: Service, ask: Callable[[App], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with opened([service]):
            return await ask(app_of(service))

    return asyncio.run(asked())


def _refuse_unknown(service: Service, consumer: str | None, topic: str | None) -> None:
    for what, given, known in (
        ("consumer", consumer, service.declared.consumers),
        ("topic", topic, service.declared.topics),
    ):
        if given is not None and given not in known:
            raise ConfigurationError(f"{service.name} has no {what} {given!r}.{did_you_mean(given, known)}")


def _tell(grant: Grant, as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(_facts(grant))
    else:
        say(sentence, "green")


def _facts(grant: Grant) -> dict[str, object]:
    return {**{name: getattr(grant, name) for name in grant.__struct_fields__}, "state": grant.state}


def _row(grant: Grant) -> tuple[str, ...]:
    used = f"{grant.used:,} of {grant.most:,}"
    asked, approved = grant.asked_by, grant.approved_by or ""
    return grant.id, grant.state, grant.verb, grant.scope.words, asked, approved, used, _left(grant)


def _left(grant: Grant) -> str:
    return span(grant.left) if grant.state == "running" and grant.left is not None else ""


def _approved(grant: Grant) -> str:
    if grant.approved_by is None:
        return ""
    return f"{grant.approved_by} ({grant.approved_as}), {when(grant.approved_at or 0)}, for {grant.minutes} minutes"

"""`posthouse outbox resend`: send again what a broker lost, from what the stores still have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from posthouse.app import App, apps_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.losses import when
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import complain, confirm, counted, print_json, print_table, say, span
from posthouse.cli.target import Targets, load_all
from posthouse.errors import BrokerUnavailable, ConfigurationError, did_you_mean
from posthouse.receiving.readers import topics_of
from posthouse.resend import Choice, Resent, readers_of
from posthouse.resend import resend as send_again
from posthouse.service import Service

COLUMNS = ("SERVICE", "TOPIC", "TENANT", "EVENTS", "KEYS", "OLDEST", "NEWEST")


def resend(
    targets: Targets,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    key: Annotated[str | None, typer.Option(help="Only of this ordering key.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was said at or after it: 2026-04-22T10:00:00Z.", metavar="TIME")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what was said before it.", metavar="TIME")] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only what a consumer of these services has not; name them too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also unordered events that consumers may have applied and forgotten.")
    ] = False,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send events again that a broker lost, from what the store still has of them.

    They are the same frames with the same ids and numbers: consumers drop what they know and apply what they lack, in order.
    Relays and consumers may go on meanwhile. Broken off in the middle, begin again: nothing is applied twice.
    """
    services = load_all(targets)
    choice = Choice(
        topic=topic,
        tenant=tenant,
        key=key,
        since=None if since is None else moment_of(since),
        until=None if until is None else moment_of(until),
        missing=missing,
        force=force,
    )
    _refuse_what_finds_nothing(services, choice)
    results = asyncio.run(_resent(services, choice, dry_run=dry_run, by=by, why=why, ask=not (yes or as_json)))
    if as_json:
        print_json({"dry_run": dry_run, "services": results})
    else:
        _show(results, dry_run=dry_run, retention=apps_of(services))
    for result in results:
        for reason, number in result.refused.items():
            complain(f"posthouse: the broker refused {counted(number, 'event')} of {result.service}: {reason}")
    if any(result.refused for result in results):
        raise typer.Exit(CHECK_FAILED)


def _refuse_what_finds_nothing(services: Sequence[Service], choice: Choice) -> None:
    said = {topic for service in services for topic in service.declared.topics}
    if choice.topic is not None and choice.topic not in said:
        names = ", ".join(service.name for service in services)
        raise ConfigurationError(f"{names} says nothing in {choice.topic!r}.{did_you_mean(choice.topic, said)}")
    if choice.since is not None and choice.until is not None and choice.since >= choice.until:
        raise ConfigurationError("--since is not before --until: nothing was said in between")
    read = {topic for reader in readers_of(apps_of(services)) for topic in topics_of(reader.handlers)}
    if choice.missing and not read & ({choice.topic} if choice.topic else said):
        raise ConfigurationError("--missing: none of these services consumes such events; name those that do as well")


async def _resent(
    services: Sequence[Service], choice: Choice, *, dry_run: bool, by: str, why: str, ask: bool
) -> list[Resent]:
    apps = apps_of(services)
    async with opened(services):
        if ask and not dry_run:
            found = await send_again(apps, choice, dry_run=True)
            if not sum(result.events for result in found):
                return found
            _table(found)
            number = counted(sum(result.events for result in found), "event")
            await asyncio.to_thread(confirm, f"Send {number} again?")
        try:
            return await send_again(apps, choice, dry_run=dry_run, by=by, why=why)
        except BrokerUnavailable as error:
            raise BrokerUnavailable(f"{error}; some may have been sent: send all of them again") from error


def _show(results: Sequence[Resent], *, dry_run: bool, retention: Sequence[App]) -> None:
    events, sent = sum(result.events for result in results), sum(result.sent for result in results)
    if dry_run:
        _table(results)
    if not events:
        say("nothing to send: the store has no such events any more, or nobody lacks them", "yellow")
    elif dry_run:
        say(f"\n{counted(events, 'event')} would be sent again; nothing was sent", "green")
    else:
        say(f"{counted(sent, 'event')} sent again: see `posthouse status TARGET`", "green")
    for result in results:
        if result.forgotten:
            say(
                f"{result.service}: {counted(result.forgotten, 'event')} left out: they stand in no order and are older than "
                "inbox_retention, so that consumers cannot tell whether they have applied them, and would set them aside; "
                "--force sends them all the same",
                "yellow",
            )
        for topic, number in result.gone.items():
            say(f"{result.service}: {number:,} more of {topic} were sent and are in the store no more", "yellow")
    if any(result.gone for result in results):
        kept = retention[0].settings
        say(
            f"(events stay for outbox_retention={span(kept.outbox_retention)} after they were sent, and at most "
            f"{kept.outbox_retention_bytes / 2**20:,.0f} MiB of them)",
            "dim",
        )


def _table(results: Sequence[Resent]) -> None:
    rows = [
        (r.service, part.topic, part.tenant, part.events, part.keys, when(part.oldest), when(part.newest))
        for r in results
        for part in r.parts
    ]
    if rows:
        print_table(COLUMNS, rows)

"""`posthouse seek`: move a consumer to another place in its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.broker import Progress
from posthouse.cli.moment import moment_of
from posthouse.cli.options import AsJson, Yes
from posthouse.cli.output import print_json, print_table
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.service import Service


def seek(
    target: Target,
    time: Annotated[
        str | None, typer.Option(help="The first event stored at or after it: 2026-04-22T10:00:00Z.", metavar="TIME")
    ] = None,
    position: Annotated[
        str | None, typer.Option(help="The first event at or after a position of the broker's; needs --topic.")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(help="Whose place: a name from `posthouse topics`. Default: the service's own.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="In this topic. Default: in all that the consumer reads.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a consumer read on from another place of its topics; members that run pick it up within seconds.

    Going back repeats nothing that is applied already: the inbox knows it. Going ahead passes over events; an ordered
    consumer holds what comes after such a gap until it is released.
    """
    service = load(target)
    name = _consumer(service, consumer)
    topics = _topics(service, name, topic)
    moment = _moment(time, position, topics)
    if not yes:
        place = time if position is None else f"position {position}"
        typer.confirm(f"Move {name} to {place} in {', '.join(topics)}?", abort=True, err=True)
    before, after = asyncio.run(_moved(service, name, topics, position, moment))
    if as_json:
        print_json(
            {
                "consumer": name,
                "topics": {t: {"unread_before": before[t].pending, "unread": after[t].pending} for t in topics},
            }
        )
    else:
        rows = [(name, t, before[t].pending, after[t].pending) for t in topics]
        print_table(("CONSUMER", "TOPIC", "UNREAD BEFORE", "UNREAD NOW"), rows)


async def _moved(
    service: Service, name: str, topics: Sequence[str], position: str | None, moment: float | None
) -> tuple[Mapping[str, Progress], Mapping[str, Progress]]:
    try:
        before = await app_of(service).broker.progress(name, topics)
        for topic in topics:
            await app_of(service).broker.seek(name, topic, position=_position(position), time=moment)
        return before, await app_of(service).broker.progress(name, topics)
    finally:
        await service.aclose()


def _position(given: str | None) -> int | str | None:
    """Brokers whose positions are numbers want a number."""
    return int(given) if given is not None and given.isdecimal() else given


def _consumer(service: Service, given: str | None) -> str:
    known = [name for name in service.declared.consumers if name not in service.declared.projections]
    name = given if given in known or given is None else f"{service.name}.{given}"
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        name = service.name
    if name in service.declared.projections:
        raise ConfigurationError(f"{name} is a read model: make it anew with `posthouse projection rebuild`")
    if name not in known:
        raise ConfigurationError(
            f"{service.name} has no consumer {given or name!r}: it has {', '.join(known) or 'none'}."
            f"{did_you_mean(given or name, known)}"
        )
    return name


def _topics(service: Service, consumer: str, given: str | None) -> Sequence[str]:
    read = app_of(service).topology().groups[consumer]
    if given is None:
        return read
    if given not in read:
        raise ConfigurationError(
            f"{consumer} does not read {given!r} but {', '.join(read)}.{did_you_mean(given, read)}"
        )
    return [given]


def _moment(time: str | None, position: str | None, topics: Sequence[str]) -> float | None:
    if (time is None) == (position is None):
        raise ConfigurationError("say where to: --time 2026-04-22T10:00:00Z, or --position with --topic")
    if position is not None and len(topics) != 1:
        raise ConfigurationError(f"a position belongs to one topic: add --topic, one of {', '.join(topics)}")
    return None if time is None else moment_of(time)

"""`posthouse seek`: move a consumer to another place in its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.broker import Progress
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, print_json, print_table
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.replays import seek as send_to
from posthouse.reprocessing import consumer_of
from posthouse.service import Service
from posthouse.store import Action


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would move, and move nothing.")] = False,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a consumer read on from another place of its topics; members that run pick it up within seconds.

    Going back repeats nothing that is applied already: the inbox knows it. Going ahead passes over events; an ordered
    consumer holds what comes after such a gap until it is released.
    """
    service = load(target)
    name = consumer_of(service, consumer)
    topics = _topics(service, name, topic)
    moment = _moment(time, position, topics)
    place = time if position is None else f"position {position}"
    if dry_run:
        _show_plan(service, name, topics, str(place), as_json)
        return
    if not yes:
        confirm(f"Move {name} to {place} in {', '.join(topics)}?")
    action = Action(verb="seek", by=by, why=why, consumer=name, topic=topics[0] if len(topics) == 1 else "")
    action = msgspec.structs.replace(action, target=f"{name} to {place}", count=len(topics))
    before, after = asyncio.run(_moved(service, topics, position, moment, action))
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
    service: Service, topics: Sequence[str], position: str | None, moment: float | None, action: Action
) -> tuple[Mapping[str, Progress], Mapping[str, Progress]]:
    async with opened([service]):
        return await send_to(service, topics, action, position=_position(position), time=moment)


def _show_plan(service: Service, name: str, topics: Sequence[str], place: str, as_json: bool) -> None:
    """What is unread now; how much it would be, only the broker knows once it has moved."""

    async def look() -> Mapping[str, Progress]:
        async with opened([service]):
            return await app_of(service).broker.progress(name, topics)

    now = asyncio.run(look())
    if as_json:
        unread = {topic: {"unread": now[topic].pending} for topic in topics}
        print_json({"consumer": name, "to": place, "dry_run": True, "topics": unread})
    else:
        print_table(
            ("CONSUMER", "TOPIC", "UNREAD NOW", "WOULD MOVE TO"), [(name, t, now[t].pending, place) for t in topics]
        )


def _position(given: str | None) -> int | str | None:
    """Brokers whose positions are numbers want a number."""
    return int(given) if given is not None and given.isdecimal() else given


def _topics(service: Service, consumer: str, given: str | None) -> Sequence[str]:
    read = app_of(service).opened.topology().groups[consumer]
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

"""Missing: events that were sent and that a consumer never got. Whether they can be sent again, and the word of an operator who
accepts that they are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from posthouse.app import App, apps_of
from posthouse.errors import DeskError
from posthouse.operators import OperatorsLog
from posthouse.resend import said_at
from posthouse.service import Service
from posthouse.store import HeldFilter, SentFilter
from posthouse.store.actions import Action, ActionFilter
from posthouse.watch.status import Line

VERB = "outbox accept-loss"


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done about a line that lacks events. `since`: the store of `producer` still has events of that topic, said from
    then on (seconds since 1970); None when it has none."""

    consumer: str
    topic: str
    missing: int
    producer: str
    since: float | None


async def remedies(services: Sequence[Service], lines: Sequence[Line]) -> list[Remedy]:
    """For each of these lines that lacks events for certain."""
    return [
        await _remedy(producer, line)
        for line in lines
        if line.verdict == "does not add up" and line.difference > 0
        for producer in apps_of(services)
        if line.topic in said_by(producer)
    ]


async def _remedy(producer: App, line: Line) -> Remedy:
    first = await producer.store.outbox.sent(SentFilter(topic=line.topic), 0, 1)
    return Remedy(
        consumer=line.consumer,
        topic=line.topic,
        missing=line.difference,
        producer=producer.opened.name,
        since=said_at(first[0]) if first else None,
    )


def said_by(app: App) -> set[str]:
    """The topics whose events its services say."""
    names = {service.name for service in app.services}
    return {
        event_type.topic
        for service in app.services
        for event_type in (*service.declared.catalogue, *service.declared.internal_events)
        if event_type.subject.service in names
    }


def nothing_to_accept(line: Line) -> str:
    """Why there is no loss in a line that could be accepted; empty when there is one."""
    if line.verdict == "adds up":
        return f"{line.consumer} lacks nothing in {line.topic}"
    if line.verdict == "cannot tell":
        return f"nobody can tell what {line.consumer} lacks in {line.topic}: {line.reason}"
    if -line.difference > line.lost:
        return f"{line.consumer} has {-line.difference:,} too many in {line.topic}: that is no loss"
    if line.difference > 0 and (waiting := line.held.get("gap", 0)):
        return (
            f"{waiting:,} {'event' if waiting == 1 else 'events'} of {line.consumer} in {line.topic} "
            f"{'waits' if waiting == 1 else 'wait'} at a gap, for numbers that are among the missing. Send these again, or give them "
            "up first: then their keys go on, and they count as skipped"
        )
    return ""


async def at_gaps(services: Sequence[Service], line: Line, limit: int) -> list[int]:
    """The numbers of held events, one for each key of the line that stands at a gap; of the first so many keys."""
    app = next(app for app in apps_of(services) if line.consumer in app.opened.topology().groups)
    wanted = HeldFilter(consumer=line.consumer, topic=line.topic, state="gap")
    firsts: dict[tuple[str, str | None], int] = {}
    for held in await app.store.held.find(wanted, limit=1000):
        firsts.setdefault((held.entry.tenant, held.entry.key), held.id)
    return [*firsts.values()][:limit]


async def accept_loss(services: Sequence[Service], line: Line, *, by: str = "", why: str = "") -> Action:
    """Let a line add up as it stands: what it lacks counts as lost from now on, and what came after all, of what was accepted
    before, does not any more. One transaction in the consumer's store, with its entry in the operators' log. DeskError when
    there is nothing to accept, or somebody else has accepted something since the line was read."""
    if reason := nothing_to_accept(line):
        raise DeskError(reason)
    app = next(app for app in apps_of(services) if line.consumer in app.opened.topology().groups)
    lost = line.lost + line.difference
    action = Action(
        verb=VERB,
        by=by,
        why=why,
        consumer=line.consumer,
        topic=line.topic,
        target=f"what {line.consumer} lacks in {line.topic}",
        changed={"lost": (line.lost, lost)},
        count=line.difference,
    )
    async with app.store.begin() as tx:
        if not await app.store.inbox.accept_loss(tx, line.consumer, line.topic, seen=line.lost, lost=lost):
            raise DeskError(
                f"{line.consumer} in {line.topic}: somebody else has accepted a loss there meanwhile: look again"
            )
        await OperatorsLog(app.store, app.opened.name).note(tx, action)
    return action


async def accepted(services: Sequence[Service], lines: Sequence[Line]) -> Mapping[tuple[str, str], Action]:
    """Of the lines with an accepted loss, who accepted it last, as far as the operators' log goes back."""
    if not any(line.lost for line in lines):
        return {}
    found: dict[tuple[str, str], Action] = {}
    for app in apps_of(services):
        for action in await app.store.actions.find(ActionFilter(verb=VERB), 1000):
            found.setdefault((action.consumer, action.topic), action)
    return found

"""Replaying: let a consumer read again, send again what a broker lost, build a read model anew. The last two take their time, so they
are jobs of one step, which is begun again by whoever takes the job up: both may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from posthouse import reprocessing
from posthouse.app import app_of
from posthouse.console.acting.act import Act, AnyAct, Call, Look, Name, Outcome
from posthouse.console.asking import Refusal
from posthouse.errors import did_you_mean
from posthouse.history.replay import Choice, From
from posthouse.jobs import Told, Work, begun
from posthouse.processes.projection.rebuilding import Plan, Progress
from posthouse.replays import rebuild, seek
from posthouse.resend import Choice as Resending
from posthouse.resend import resend
from posthouse.service import Service
from posthouse.store import Action
from posthouse.store.actions import of_item
from posthouse.store.jobs import Job

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a consumer is to read on: at a time, or at a position of the broker's in one topic."""

    consumer: Name | None = None
    topic: Name | None = None
    time: Moment | None = None
    position: Name | None = None


def _whose(call: Call[Place]) -> tuple[str, Sequence[str]]:
    service, asked = call.service, call.parameters
    known = [name for name in service.declared.consumers if name not in service.declared.projections]
    name = asked.consumer or (known[0] if len(known) == 1 else service.name)
    if name in service.declared.projections:
        raise Refusal(400, f"{name} is a read model.", "Rebuild it instead.")
    if name not in known:
        raise Refusal(400, f"{service.name} has no consumer {name!r}.{did_you_mean(name, known)}")
    read = app_of(service).opened.topology().groups[name]
    if asked.topic is not None and asked.topic not in read:
        raise Refusal(400, f"{name} does not read {asked.topic!r}.{did_you_mean(asked.topic, read)}")
    topics = read if asked.topic is None else [asked.topic]
    if (asked.time is None) == (asked.position is None):
        raise Refusal(400, "Say where to: `time`, or `position` with `topic`.")
    if asked.position is not None and len(topics) != 1:
        raise Refusal(400, "A position belongs to one topic.", f"Add `topic`, one of {', '.join(topics)}.")
    return name, topics


async def _look_seek(call: Call[Place]) -> Look:
    name, topics = _whose(call)
    now = await call.app.broker.progress(name, topics)
    return Look(
        sentence=f"{name} reads on from {_place(call.parameters)} in {', '.join(topics)}; members that run pick it up within seconds.",
        danger="Going back repeats nothing that is applied already. Going ahead passes over events: an ordered consumer holds what comes after such a gap.",
        counts={f"unread now in {topic}": now[topic].pending for topic in topics},
    )


async def _seek(call: Call[Place], look: Look) -> Outcome:
    (name, topics), asked = _whose(call), call.parameters
    action = Action(verb="seek", by=call.by, why=call.why, service=call.service.name, consumer=name, count=len(topics))
    action = msgspec.structs.replace(
        action, topic=topics[0] if len(topics) == 1 else "", target=f"{name} to {_place(asked)}"
    )
    position = int(asked.position) if asked.position is not None and asked.position.isdecimal() else asked.position
    time = None if asked.time is None else asked.time.timestamp()
    await seek(call.service, topics, action, position=position, time=time)
    return Outcome(sentence=f"{name} reads on from {_place(asked)}.")


def _place(asked: Place) -> str:
    return f"position {asked.position}" if asked.time is None else asked.time.isoformat()


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a broker lost; what is not said is any."""

    topic: Name | None = None
    tenant: Name | None = None
    key: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    missing: bool = False
    force: bool = False

    @property
    def choice(self) -> Resending:
        """As `resend` takes it."""
        return Resending(
            topic=self.topic,
            tenant=self.tenant,
            key=self.key,
            since=None if self.since is None else self.since.timestamp(),
            until=None if self.until is None else self.until.timestamp(),
            missing=self.missing,
            force=self.force,
        )


async def _look_resend(call: Call[Lost]) -> Look:
    asked, said = call.parameters, call.service.declared.topics
    if asked.topic is not None and asked.topic not in said:
        raise Refusal(400, f"{call.service.name} says nothing in {asked.topic!r}.{did_you_mean(asked.topic, said)}")
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise Refusal(400, "`since` is not before `until`: nothing was said in between.")
    [found] = await resend([call.app], asked.choice, dry_run=True)
    if not found.events:
        raise Refusal(409, "Nothing to send: the store has no such events any more, or nobody lacks them.")
    left = f"{found.forgotten:,} that stand in no order are left out: consumers may have forgotten them."
    return Look(
        sentence=f"{found.events:,} events of {found.service} are sent again, as they were; consumers drop what they know.",
        danger="Unordered events that were forgotten are applied twice." if asked.force else "",
        lines=[left] if found.forgotten else [],
        counts={f"{part.topic}, {part.tenant}": part.events for part in found.parts[:20]},
    )


class Anew(msgspec.Struct, frozen=True, kw_only=True):
    """A read model, and how it is built anew."""

    projection: Name
    source: Literal["log", "streams"] | None = msgspec.field(default=None, name="from")
    grace: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    keep: bool = False
    partial: bool = False
    with_held: bool = False


async def _look_rebuild(call: Call[Anew]) -> Look:
    asked = call.parameters
    projection = call.app.projections.named(asked.projection)
    rows = [row for row in await call.app.store.projections.generations() if row.projection == projection.consumer]
    building = next((row for row in rows if row.state == "building"), None)
    how = "A new generation" if building is None else f"Generation {building.number}, which was begun,"
    after = "is kept" if asked.keep else f"goes {asked.grace:g} seconds after"
    return Look(
        sentence=f"{how} of {projection.consumer} is built beside the one that is read, and takes its place; the one before {after}.",
        danger="It lacks events: it was accepted that some are gone." if asked.partial or asked.with_held else "",
        lines=["This console runs its handlers meanwhile. It goes on after a restart."],
        seen=" ".join(f"{row.number} {row.state}" for row in rows),
    )


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Which events one consumer is given once more, and how fast; a rate of 0 is as fast as it goes."""

    consumer: Name | None = None
    type: Name | None = None
    tenant: Name | None = None
    key: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    source: From = msgspec.field(default="log", name="from")
    reprocess: bool = False
    twice: bool = False
    rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def choice(self, service: Service) -> Choice:
        """As a replay takes it."""
        return Choice(
            consumer=reprocessing.consumer_of(service, self.consumer),
            type=self.type,
            tenant=self.tenant,
            key=self.key,
            since=None if self.since is None else self.since.timestamp(),
            until=None if self.until is None else self.until.timestamp(),
            source=self.source,
            reprocess=self.reprocess,
            twice=self.twice,
        )


async def _look_again(call: Call[Again]) -> Look:
    choice = call.parameters.choice(call.service)
    plan = await reprocessing.planned(call.service, choice)
    if not plan.events:
        raise Refusal(409, "Nothing to apply: nothing of the range is there, or all of it was applied.")
    shown = {f"{part.type}, {part.tenant}": part.again + part.missing for part in plan.parts[:20]}
    return Look(
        sentence=f"{plan.events:,} events are applied by {choice.consumer} once more, and by nobody else.",
        danger="What comes behind them in their keys waits meanwhile." if choice.reprocess else "",
        lines=[f"{number:,} are left out: {reason}." for reason, number in plan.left_out.items()],
        counts={**shown, **({"others": plan.events - sum(shown.values())} if len(plan.parts) > len(shown) else {})},
    )


async def _start_again(call: Call[Again], look: Look) -> Outcome:
    choice = call.parameters.choice(call.service)
    total = sum(int(number) for number in look.counts.values())
    job = await reprocessing.begin(
        call.service, choice, total=total, rate=call.parameters.rate, by=call.by, why=call.why, id=call.press
    )
    return Outcome(sentence="It has begun, as a job.", job=job.id)


async def _start(name: str, call: Call[object], total: int = 0) -> Outcome:
    job = Job(
        id=call.press,
        service=call.service.name,
        act=name,
        parameters=msgspec.json.encode(call.parameters),
        by=call.by,
        why=call.why,
        total=total,
        rate=1.0,
    )
    async with call.app.store.begin() as tx:
        await call.app.actions.note(tx, begun(job))
        await call.app.store.jobs.add(tx, job)
    return Outcome(sentence="It has begun, as a job.", job=job.id)


async def _start_resend(call: Call[Lost], look: Look) -> Outcome:
    return await _start("outbox.resend", call)


async def _start_rebuild(call: Call[Anew], look: Look) -> Outcome:
    return await _start("projection.rebuild", call)


async def _resend(service: Service, job: Job, told: Told) -> str:
    asked = msgspec.json.decode(job.parameters, type=Lost)
    [sent] = await resend([app_of(service)], asked.choice, by=job.by, why=of_item(job.why, job.id))
    told(sent.sent, sent.events)
    refused = ", ".join(f"{number:,} were refused: {reason}" for reason, number in sent.refused.items())
    return f"{sent.sent:,} events were sent again{'; ' if refused else ''}{refused}"


async def _rebuild(service: Service, job: Job, told: Told) -> str:
    asked, app = msgspec.json.decode(job.parameters, type=Anew), app_of(service)
    plan = Plan(
        source=asked.source,
        drop_after=None if asked.keep else asked.grace,
        partial=asked.partial,
        with_held=asked.with_held,
    )
    await app.open()

    def hear(progress: Progress) -> None:
        told(progress.done, progress.total)

    done = await rebuild(service, asked.projection, plan, hear, by=job.by, why=of_item(job.why, job.id))
    told(done.events, done.events)
    return f"generation {done.generation} of {done.projection} is live: {done.events:,} events from the {done.source}"


WHOLE: Mapping[str, Work] = {
    "outbox.resend": _resend,
    "projection.rebuild": _rebuild,
    "replay": reprocessing.work,
}
"""What is done at one stretch, by the act that makes the job; returns what came of it."""

ACTS: tuple[AnyAct, ...] = (
    Act(name="seek", title="Move the consumer", role="replayer", parameters=Place, look=_look_seek, do=_seek, all_tenants=True, grant="replay"),
    Act(name="outbox.resend", title="Send again", role="replayer", parameters=Lost, look=_look_resend, do=_start_resend, all_tenants=True, grant="replay"),
    Act(name="projection.rebuild", title="Rebuild", role="replayer", parameters=Anew, look=_look_rebuild, do=_start_rebuild, all_tenants=True, grant="replay"),
    Act(name="replay", title="Apply again", role="replayer", parameters=Again, look=_look_again, do=_start_again, all_tenants=True, grant="replay"),
)  # fmt: skip

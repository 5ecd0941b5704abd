"""Bulk: acts over many things. What is pressed is a job in the store, frozen as it was seen; a console runs it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

import msgspec

from posthouse.console.acting.act import Act, AnyAct, Call, Look, Name, Outcome, refuse_rights
from posthouse.console.acting.kind import Kind, Pace
from posthouse.console.acting.kinds import KINDS, HeldKind
from posthouse.console.asking import Refusal
from posthouse.errors import DeskError, did_you_mean
from posthouse.jobs import begun, ended
from posthouse.operators import plain
from posthouse.service import Service
from posthouse.store import Action, GrantVerb
from posthouse.store.jobs import ENDED, Job, JobState
from posthouse.trust.rights.identity import folded

MOST = 10_000
"""So many items are counted before a press; beyond that it is said that there are more."""
COUNTED = 500
"""So many at once."""
WITHIN = 3.0
"""Seconds that counting may take."""

TITLES = {
    "held.retry.all": ("Retry all", "run again, with all their attempts", ""),
    "held.rerun.all": ("Run all out of order", "run again, out of order", "Their keys have gone on: their handlers must bear what comes late."),
    "held.skip.all": ("Skip all", "are given up", "What they say is not applied. Their keys go on without them."),
    "held.quarantine.all": ("Quarantine all", "are set aside for inspection", "They never run by themselves again. Their keys go on."),
    "held.release.all": ("Release all", "have their keys released", "Missing numbers are given up: their keys go past them."),
    "outbox.resend": ("Send again", "", ""),
    "projection.rebuild": ("Rebuild", "", ""),
    "replay": ("Apply again", "", ""),
    "saga.retry.all": ("Retry all", "run again what failed", ""),
    "saga.resume.all": ("Complete all", "go on without what failed, and partial ones are completed", "What failed is taken as done by hand: make sure that it was."),
    "saga.cancel.all": ("Compensate all", "undo all their steps and end as cancelled", "What is undone is not done again: new sagas have to be started for it."),
    "outbox.retry.all": ("Try all again", "are tried again as soon as a relay runs", ""),
}  # fmt: skip


THINGS = {"held": "held event", "outbox": "refused event", "saga": "saga"}
"""What a job goes through, by the first word of its act."""


GRANTS: Mapping[str, GrantVerb] = {
    "held.retry.all": "replay",
    "held.rerun.all": "replay",
    "held.release.all": "replay",
    "saga.retry.all": "replay",
    "saga.resume.all": "edit",
    "saga.cancel.all": "edit",
}
"""What each needs a grant to, as its act on one thing does."""


def frozen(name: str, call: Call[Pace], last: int, seen_at: float = math.inf) -> Job:
    """The job as it is pressed, before it is counted: what changes after `seen_at` is not part of it."""
    pace, kind = call.parameters, KINDS[name]
    return Job(
        id=call.press,
        service=call.service.name,
        act=name,
        parameters=msgspec.json.encode(pace),
        by=call.by,
        why=call.why,
        tenants=None if call.who.tenants is None else tuple(sorted(call.who.tenants)),
        last=last,
        seen_at=seen_at,
        rate=pace.rate,
        canary=pace.canary if kind.judged else 0,
        stop_after=pace.stop_after if kind.judged else 0,
    )


async def counted(service: Service, kind: Kind, job: Job) -> tuple[int, bool]:
    """How many items fit, and whether there are more than were counted."""
    number, after = 0, 0
    try:
        async with asyncio.timeout(WITHIN):
            while True:
                fitting, following = await kind.count(service, job, after, COUNTED)
                number += fitting
                if following is None or number > MOST:
                    return min(number, MOST), number > MOST
                after = following
    except TimeoutError:
        return min(number, MOST), True


async def _look(name: str, call: Call[Pace]) -> Look:
    _refuse_filter(call)
    kind = KINDS[name]
    _refuse_state(name, kind, call)
    job = frozen(name, call, await kind.newest(call.app))
    number, more = await counted(call.service, kind, job)
    if not number:
        raise Refusal(409, "Nothing fits.", "It may have been dealt with meanwhile.")
    thing = THINGS[name.partition(".")[0]]
    _, words, danger = TITLES[name]
    many = f"{number:,}{'+' if more else ''} {thing}{'' if number == 1 and not more else 's'}"
    lines = [
        f"At most {job.rate:g} a second{_about(number, job.rate)}. What comes or changes after the press is not part of it."
    ]
    if job.canary:
        lines.append(f"The first {job.canary} go ahead: it goes on when all of them were applied.")
    if job.stop_after:
        lines.append(f"It stops after {job.stop_after} that failed again.")
    # how many there are may change while somebody reads: what is pressed is the filter
    return Look(
        sentence=f"{many} of {call.service.name} {words}, one after the other.",
        danger=danger,
        lines=lines,
        counts={f"{thing}s": f"{number:,}+" if more else number},
        seen="",
    )


def _about(number: int, rate: float) -> str:
    seconds = number / rate
    return "" if seconds < 5 else f": about {seconds:.0f} s" if seconds < 120 else f": about {seconds / 60:.0f} minutes"


async def _start(name: str, call: Call[Pace], look: Look) -> Outcome:
    kind, app = KINDS[name], call.app
    async with app.store.begin() as tx:
        seen_at = await app.store.timers.now(tx)
    job = frozen(name, call, await kind.newest(app), seen_at)
    number, more = await counted(call.service, kind, job)
    job = msgspec.structs.replace(job, total=number, more=more)
    async with app.store.begin() as tx:
        await app.actions.note(tx, begun(job))
        await app.store.jobs.add(tx, job)
    return Outcome(sentence=f"The job has begun: {number:,}{'+' if more else ''} to go through.", job=job.id)


def _refuse_filter(call: Call[Pace]) -> None:
    """A tenant that they may not see is none that they may ask for."""
    tenant = getattr(call.parameters, "tenant", None)
    if tenant is not None and not call.who.sees(tenant):
        raise Refusal(403, f"You do not see the tenant {tenant!r}.")
    declared = call.service.declared
    for thing, known in (("consumer", declared.consumers), ("saga", declared.saga_types)):
        name = getattr(call.parameters, thing, None)
        if name is not None and name not in known:
            raise Refusal(400, f"{call.service.name} has no {thing} {name!r}.{did_you_mean(name, known)}")


INSTEAD = {
    "skipped": "Their keys went on without them: “Run all out of order” runs them, where their handlers bear it.",
    "blocked": "They wait behind earlier ones of their keys: deal with those, and they follow by themselves.",
    "gap": "They wait for numbers that never came: wait, or release their keys.",
}
"""What to press for events in a state, where something else was."""


def _refuse_state(name: str, kind: Kind, call: Call[Pace]) -> None:
    """What would be refused item by item is refused at the press, with what works."""
    state = getattr(call.parameters, "state", None)
    if isinstance(kind, HeldKind) and state is not None and state not in kind.works:
        hint = INSTEAD.get(state, f"It is for those that are {' or '.join(sorted(kind.works))}.")
        raise Refusal(409, f"{TITLES[name][0]} does nothing for events that are {state}.", hint)


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job by its id."""

    job: Name


async def found(call: Call[OneJob], makers: Mapping[str, AnyAct]) -> Job:
    """The job, for whoever may press the act that made it; one that may touch tenants which they do not see is not there."""
    job = await call.app.store.jobs.get(call.parameters.job)
    mine = call.who.tenants
    if job is None or job.service != call.service.name or not shown(job, mine):
        raise Refusal(404, f"{call.service.name} has no job {call.parameters.job}.")
    if job.act not in makers:
        raise Refusal(409, f"This console does not know {job.act}.", "Use one of the version that began the job.")
    refuse_rights(makers[job.act], call.who)
    return job


def shown(job: Job, tenants: frozenset[str] | None) -> bool:
    """Whether whoever sees these tenants may see the job."""
    return tenants is None or (job.tenants is not None and set(job.tenants) <= tenants)


async def _refuse_others(call: Call[OneJob], job: Job, grant: GrantVerb | None) -> None:
    """A job spends the grant of whoever pressed for it: nobody else lets it go on."""
    if grant is None or not call.app.grants.needed:
        return
    if folded(call.by) != folded(job.by):
        raise Refusal(
            403,
            f"It spends the grant of {plain(job.by)}, who alone may let it go on.",
            "Begin one with a grant of yours.",
        )
    await call.app.grants.refuse_none(job.service, grant, call.by)


def _deciding(makers: Mapping[str, AnyAct], word: JobState, title: str, sentence: str, danger: str = "") -> AnyAct:
    verb = {"paused": "pause", "running": "resume", "cancelled": "cancel"}[word]

    async def look(call: Call[OneJob]) -> Look:
        job = await found(call, makers)
        if job.state in ENDED:
            raise Refusal(409, f"The job has ended: it is {job.state}.")
        if word == "running":
            await _refuse_others(call, job, makers[job.act].grant)
        waits = bool(job.canary) and not job.canary_passed
        if job.state == word and not (word == "running" and waits):
            raise Refusal(409, f"The job is {job.state} already.")
        left = f" {job.done:,} of {job.total:,}{'+' if job.more else ''} are done." if job.total else ""
        return Look(sentence=sentence + left, danger=danger, seen=job.state)

    async def do(call: Call[OneJob], look: Look) -> Outcome:
        job, store = await found(call, makers), call.app.store
        async with store.begin() as tx:
            if not await store.jobs.decide(tx, job.id, word, canary_passed=word == "running"):
                raise DeskError("the job has ended meanwhile")
            action = Action(verb=f"job {verb}", by=call.by, why=call.why, service=job.service, target=f"job {job.id}")
            await call.app.actions.note(tx, msgspec.structs.replace(action, changed={"state": (job.state, word)}))
            if word == "cancelled":
                await store.actions.end(tx, ended(job, word))
        return Outcome(sentence=f"The job is {word}.", job=job.id)

    return Act(name=f"job.{verb}", title=title, role="reader", parameters=OneJob, look=look, do=do)


def _bulk(name: str) -> AnyAct:
    async def look(call: Call[Pace]) -> Look:
        return await _look(name, call)

    async def do(call: Call[Pace], look: Look) -> Outcome:
        return await _start(name, call, look)

    parameters = KINDS[name].parameters
    return Act(
        name=name,
        title=TITLES[name][0],
        role="operator",
        parameters=parameters,
        look=look,
        do=do,
        bulk=True,
        grant=GRANTS.get(name),
    )


ACTS: tuple[AnyAct, ...] = tuple(_bulk(name) for name in KINDS)


def deciding(makers: Mapping[str, AnyAct]) -> tuple[AnyAct, ...]:
    """Acts on jobs. Whoever may press the act that made a job, by `makers`, may decide about it, and nobody else."""
    return (
        _deciding(makers, "paused", "Pause", "The job does nothing more until somebody resumes it."),
        _deciding(makers, "running", "Resume", "The job goes on, and waits for the outcome of the first ones no more."),
        _deciding(makers, "cancelled", "Cancel the job", "The job ends here.", "What it did stays done."),
    )

"""Reprocessing: replays as operators ask for them: counted, begun as a job, run by whoever takes that up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

import msgspec

from posthouse.app import App, app_of
from posthouse.clock import backoff, new_id
from posthouse.errors import ArchiveUnavailable, BrokerUnavailable, ConfigurationError, DeskError, did_you_mean
from posthouse.history.replay import (
    ArchiveSource,
    Choice,
    LogSource,
    OutboxSource,
    Owner,
    Plan,
    Planner,
    Run,
    Source,
    StreamSource,
    put_aside,
    refusals,
    remember_said,
)
from posthouse.history.replay.running import FIRST_PAUSE, LAST_PAUSE
from posthouse.jobs import LEASE, LOOK, Lost, Told, WholeRun, begun
from posthouse.receiving import Executor
from posthouse.receiving.executor import NOTHING_KNOWN
from posthouse.receiving.readers import Handlers, topics_of
from posthouse.replays import refuse_replay
from posthouse.service import Service
from posthouse.store.jobs import ENDED, Job
from posthouse.store.replays import Line

ACT = "replay"
MOST_JOBS = 1_000


def consumer_of(service: Service, given: str | None) -> str:
    """The consumer that is meant. ConfigurationError for one that cannot be replayed."""
    declared = service.declared
    known = [name for name in declared.consumers if name not in declared.projections]
    name = given if given in declared.consumers or given is None else f"{service.name}.{given}"
    if name is None:
        name = known[0] if len(known) == 1 else service.name
    if name in declared.projections:
        raise ConfigurationError(f"{name} is a read model: make it anew with `posthouse projection rebuild`")
    if name not in known:
        raise ConfigurationError(
            f"{service.name} has no consumer {given or name!r}: it has {', '.join(known) or 'none'}."
            f"{did_you_mean(given or name, known)}"
        )
    return name


async def planned(service: Service, choice: Choice) -> Plan:
    """What a replay would do; nothing is changed."""
    executor = await _checked(service, choice)
    return await Planner(executor, choice, _source(service, choice)).plan()


async def begin(service: Service, choice: Choice, *, total: int, rate: float, by: str, why: str, id: str = "") -> Job:
    """Begin the job: from here on it is durable, and whoever runs jobs runs it."""
    await _checked(service, choice)
    app = app_of(service)
    fixed = msgspec.structs.replace(choice, pressed=app.clock.now())
    job = Job(
        id=id or new_id(),
        service=service.name,
        act=ACT,
        parameters=msgspec.json.encode(fixed),
        by=by,
        why=why,
        total=total,
        rate=rate,
    )
    async with app.store.begin() as tx:
        await app.actions.note(tx, begun(job))
        await app.store.jobs.add(tx, job)
    return job


async def run(service: Service, id: str, *, lease: float = LEASE, look: float = LOOK) -> Job:
    """Run a job here until it ends or is paused, or as long as another process runs it."""
    store, holder = app_of(service).store, new_id()
    while (job := await store.jobs.get(id)) is not None and job.state == "running":
        others = [one.id for one in await store.jobs.find([service.name], limit=MOST_JOBS) if one.id != id]
        taken = await store.jobs.take([service.name], holder, lease, acts=[ACT], besides=others)
        if taken is None:
            await asyncio.sleep(look)
            continue
        whole = WholeRun(service, taken, work, lease=lease, look=look)
        try:
            await whole.whole()
        except Lost:
            continue
        except asyncio.CancelledError:
            await whole.give_back()
            raise
    if job is None:
        raise DeskError(f"{service.name} has no job {id}: see `posthouse jobs list TARGET`")
    return job


async def work(service: Service, job: Job, told: Told) -> str:
    """All that a job does, from wherever it stands."""
    choice = msgspec.json.decode(job.parameters, type=Choice)
    app, failures = app_of(service), 0
    while True:
        try:
            executor = await _checked(service, choice, but_for=job.id)
            owner = Owner(job.id, job.token)
            closed: Collection[Line] = ()
            if await app.store.replays.standing(job.id) is None:
                if choice.reprocess and (own := _says(service)):
                    await remember_said(executor, choice, _said_source(service), own)
                closed = await put_aside(executor, choice, _source(service, choice), owner)
            await Run(executor, owner, _Turns(app, job, choice), told, closed).whole()
            standing = await app.store.replays.standing(job.id)
            return f"{0 if standing is None else standing.done:,} events were applied by {choice.consumer}"
        except (ArchiveUnavailable, BrokerUnavailable, *NOTHING_KNOWN):
            failures += 1
            await asyncio.sleep(backoff(failures, FIRST_PAUSE, LAST_PAUSE))


async def _checked(service: Service, choice: Choice, *, but_for: str = "") -> Executor:
    """What runs the handlers of the consumer. ConfigurationError for what cannot be replayed, with what to do."""
    choice.refuse_empty()
    app, declared = app_of(service), service.declared
    handlers = declared.consumers[consumer_of(service, choice.consumer)]
    if choice.type is not None and choice.type not in handlers:
        raise ConfigurationError(
            f"{choice.consumer} has no handler for {choice.type!r}.{did_you_mean(choice.type, handlers)}"
        )
    if choice.reprocess:
        sagas = {name for of in declared.saga_types.values() for name in (of.consumer, of.caller)}
        problems = refusals(choice.consumer, handlers, choice.type, sagas)
        if problems := [*problems, *_may_say_twice(service, choice, handlers)]:
            raise ConfigurationError(*problems)
    refuse_replay(service, sorted(topics_of(handlers)))
    _source(service, choice).refuse()
    await _refuse_beside(service, choice, but_for)
    return await app.opened.building.executor(service.name, choice.consumer, handlers, app.settings.start)


async def _refuse_beside(service: Service, choice: Choice, but_for: str) -> None:
    """One replay of a consumer at a time: two would take the same keys in turns."""
    for job in await app_of(service).store.jobs.find([service.name], limit=MOST_JOBS):
        if job.act != ACT or job.state in ENDED or job.id >= but_for > "" or job.id == but_for:
            continue
        if msgspec.json.decode(job.parameters, type=Choice).consumer == choice.consumer:
            raise ConfigurationError(
                f"{choice.consumer} is replayed by job {job.id} ({job.state}): wait for it, or `posthouse jobs cancel TARGET {job.id}`"
            )


def _may_say_twice(service: Service, choice: Choice, handlers: Handlers) -> list[str]:
    """Whether handlers may say facts a second time, because nobody can tell what they said the first."""
    app = app_of(service)
    sayers = [one.name for one in handlers.values() if one.uses.publishes]
    recent = choice.since is not None and choice.since > app.clock.now() - app.settings.outbox_retention
    if choice.twice or not sayers or recent or not isinstance(_said_source(service), OutboxSource):
        return []
    return [
        f"{', '.join(dict.fromkeys(sayers))} publishes facts, and what it said before can be read neither from a log or an archive "
        'nor, so long ago, from the outbox: it may say them twice. Accept that with --twice, or write replay="skip"'
    ]


def _says(service: Service) -> Sequence[str]:
    return sorted({known.topic for known in service.declared.own_events})


def _source(service: Service, choice: Choice) -> Source:
    app = app_of(service)
    log, archive = LogSource(app.broker), app.archive
    if choice.source == "outbox":
        return _outbox(app)
    if choice.source == "log":
        return log
    if choice.source == "stream":
        return _streams(app)
    if archive is None:
        raise ConfigurationError(
            f"{service.name} has no archive: say where it is, App(…, archive='s3://bucket/folder') or POSTHOUSE_ARCHIVE"
        )
    if choice.is_open and not log.is_there:
        raise ConfigurationError(
            "the archive is a little behind, and there is no log that has the rest: say --until, a moment that the archive has reached"
        )
    return ArchiveSource(archive, log)


def _said_source(service: Service) -> Source:
    """Where it is looked up what was said: in the archive and the log, else in the outbox."""
    app = app_of(service)
    log, archive = LogSource(app.broker), app.archive
    if archive is not None:
        return ArchiveSource(archive, log)
    return log if log.is_there else _outbox(app)


def _streams(app: App) -> StreamSource:
    """The events of aggregates, and the topic of each: those that a consumer of theirs may be given without the numbers of a log."""
    told = {
        known.name: known.topic
        for service in app.services
        for aggregate in service.declared.aggregates.values()
        for known in aggregate.events
    }
    return StreamSource(app.store, told, app.clock.now)


def _outbox(app: App) -> OutboxSource:
    said: Collection[str] = {known.topic for service in app.services for known in service.declared.own_events}
    return OutboxSource(app.store, sorted(said), app.clock.now)


class _Turns:
    """When the next event may be applied: at the job's rate, and as far as a grant of whoever asked goes. One is spent for each, when
    its turn has come: nothing is drawn ahead that would outlive the grant, or be spent for nothing."""

    def __init__(self, app: App, job: Job, choice: Choice) -> None:
        self._grants, self._job, self._choice = app.grants, job, choice
        self._next_at = 0.0
        self._asking = asyncio.Lock()

    async def __call__(self) -> None:
        async with self._asking:
            if self._job.rate > 0:
                begin = max(time.monotonic(), self._next_at)
                await asyncio.sleep(begin - time.monotonic())
                self._next_at = begin + 1 / self._job.rate
            await self._grants.draw(self._job.service, "replay", self._choice.scope, self._job.by)
